/* Which container has a GPU, and until when.
 *
 * Without MPS, processes of two containers never run side by side on a GPU; the hardware gives them
 * slices in turn. So containers take turns explicitly: the container that has the turn launches,
 * and what is charged is the time in which it had work in flight. No cost of a kernel is known.
 *
 * Each container has a virtual time: what it was charged, by its weight. Of those that want the GPU
 * the one with the least is owed most. A container that wants it after a pause has no more than a
 * credit, so that a service finds the GPU free for a request and no container saves up for a day. A
 * ceiling is a bucket that fills while time passes: empty, its container waits. Time that one
 * container does not want goes to others by the same rule: lending is no second controller.
 *
 * The turn passes on
 *   - at once when the holder has nothing in flight and is not owed; when it is owed, or came back
 *     soon last time, after a moment, for it may only have stopped to think;
 *   - to a container that woke since its last turn and is owed more than `preempt`, at any time;
 *   - after a quantum where another one has had less, earlier where one has waited too long, and
 *     always between two that use less than their shares and about as much. It is long between
 *     containers that always want the GPU: a hand-over costs some 400 us (151 us of an H100's own,
 *     and the wake of a thread), and none of them waits for an answer.
 * No container waits for the end of what was in flight when the turn was taken back: the hardware
 * slices that tail, as the next container's first launches are on their way.
 *
 * Charges are by processes, as the hardware divides. Each process has had work in flight for some
 * part of the time since the last step; what these parts make more than that time is taken off. It
 * is taken off all alike, an Nth of N processes each, unless one of the containers paused within
 * the last second: then first where that one had work in flight for longer than a launch takes and
 * none ended, for it waited for the hardware's slices; and last from what launches took that ended
 * (struct turns_work). So all are charged the wall time together. A container lowers the charge of
 * others only as the holder, or while its turn's tail may last (`late_ns`). Work in flight out of
 * turn is charged on top, and a process without progress for a second changes the charge of no
 * other: what a container says of itself (struct turns_report) is believed against it alone. So
 * what it proves is to come up to what it is charged (`doubt_ns`).
 *
 * All of it is a function of plain values, moved forward by turns_step(): nothing here knows of
 * pages, clocks or threads. Times are ns of one clock. One thread at a time.
 */
#ifndef ARBITER_CORE_TURNS_H
#define ARBITER_CORE_TURNS_H

#ifndef VCUDA_CDEF
#include <stdbool.h>
#include <stdint.h>
#endif

enum { TURNS_MEMBERS = 128, TURNS_NOBODY = -1 };

/* What is decided by, ns. */
struct turns_rules {
    double quantum;      /* a turn, where another container has had less */
    double quantum_long; /* the turns of two that always want the GPU; shorter among many */
    double greedy;       /* without a pause for so long, a container always wants the GPU */
    double pause;        /* less is no pause */
    double preempt;      /* owed so much, it takes the turn when it wakes */
    double think;       /* a holder with nothing in flight keeps its place so long if it is owed, or
                           was back so soon after its last pause; any other one a tenth of it */
    double credit;      /* a container that wakes is owed no more */
    double newcomer;    /* nor is one that has just come */
    double debt;        /* and none is ever charged ahead by more */
    double forgotten;   /* what it was owed when it left, if it was away for longer */
    double bucket;      /* of a ceiling */
    double overdraft;   /* and the most that it is charged ahead: longer than a launch */
    double refill;      /* an empty bucket holds so much, and three times its ceiling's part of it,
                           before it is used again; a gang's, whose hand-over costs several GPUs,
                           a long quantum */
    double patience;    /* a container not far over its share waits no longer */
    double no_show;     /* for a holder that does not come when granted */
    double stalled;     /* without progress, work in flight changes no other's charge */
    double window;      /* of work in flight, where a container may wake at any time */
    double window_calm; /* where none has woken for a second */
    double window_most; /* and what it grows to for a program that needs more */
    double adapt;       /* between two looks at the windows */
};

struct turns_rules turns_rules(void);

/* What one process says of one GPU (struct vcuda_hint). longest_ns 0: not known. spins: launches
 * are in flight that last as long as others make them. */
struct turns_report {
    bool spins;
    uint32_t waiting, ran_ns;
    uint64_t since_ns, busy_ns, progress_ns, longest_ns, held_ns;
};

/* The report before, by which the next one is understood. */
struct turns_process {
    bool known, in_flight;
    uint32_t ran_ns;
    uint64_t since_ns, busy_ns, held_ns, total_ns;
};

/* Time with work in flight: the sum over processes. */
struct turns_work {
    double all_ns;
    double ran_ns; /* of it: had the GPU, for launches ended that take so long */
    double may_ns; /* of it: may have had it, for a launch takes as long */
};

/* What the processes of a container say together, of the time since the last step. */
struct turns_seen {
    uint32_t waiting; /* threads that wait for the turn */
    uint32_t live;    /* processes with work in flight now */
    bool unknown;     /* how long its launches take */
    struct turns_work work;
    double stalled_ns;   /* of it, by processes without progress */
    double held_ns;      /* launches held back by the window, not by the turn */
    uint64_t longest_ns; /* a launch, about */
};

/* Add a process to what was seen between `last` and `now`. */
void turns_observe(struct turns_seen *seen, struct turns_process *process,
                   const struct turns_report *report, const struct turns_rules *rules,
                   uint64_t last, uint64_t now);

/* What a container is told: the bits of its word. */
struct turns_told {
    bool granted;
    bool bounded; /* others are there, or a ceiling is: what is in flight is to be short */
    bool shared;  /* others have work in flight, too: a drain measures nothing */
    bool wanted;  /* ring when nothing is in flight any more */
    uint64_t window;
};

/* One container on one GPU. */
struct turns_member {
    bool present;   /* else the place is free */
    bool populated; /* it has processes: it bounds the others */
    double weight;  /* guaranteed, a part of the GPU */
    double ceiling; /* not below weight; 1: none */
    struct turns_seen seen;
    struct turns_told told;

    double virtual_ns, tokens, owed; /* owed: when it left */
    double charged_ns, waited_ns;
    double unproved_ns;     /* charged since a launch was last seen to have ended */
    double doubt_ns;        /* charged, less what launches that ended took */
    struct turns_work left; /* of processes that ended since the last step */
    uint64_t turns, lates;  /* granted; taken back with work in flight */
    bool active;            /* wants the GPU, or has work on it */
    bool starved;           /* its bucket is empty */
    bool gang;              /* it has the turn on several GPUs at once, or on none (gang.h) */
    bool ready;             /* and would have it here */
    bool returns;           /* its last pause was about as short as `think` */
    uint64_t woke, went, idle_since, waits_since, ended, absent_until;
    double used_ns, free_ns;          /* of late: charged, of the time without waits for the turn */
    double charged_woke, waited_woke; /* charged_ns and waited_ns when it woke */
    double late_ns; /* the tail of its last turn is believed to take so much more; 0: none */
    unsigned absences;
    uint64_t adapted; /* the window: when, and what was so since */
    double wider, idle_ns, held_ns, charged_before;
};

struct turns_gpu {
    struct turns_rules rules;
    struct turns_member members[TURNS_MEMBERS];
    int count;  /* no place at or above it is taken */
    int holder; /* TURNS_NOBODY: free */
    uint64_t last, granted;
    double used;       /* of this turn, with work in flight */
    bool ending;       /* of the turn: what is launched now may outlast it */
    double left;       /* until the next decision, at the latest */
    bool foreign;      /* somebody outside of turns uses the GPU */
    double virtual_ns; /* the average of those who want the GPU, or wanted it last */
};

void turns_init(struct turns_gpu *gpu, struct turns_rules rules, uint64_t now);

/* A place, or TURNS_NOBODY. Weight, ceiling and populated may be set again at any time. */
int turns_join(struct turns_gpu *gpu, double weight, double ceiling);
void turns_leave(struct turns_gpu *gpu, int member);

/* Charge what was seen since the last step, and decide. */
void turns_decide(struct turns_gpu *gpu, uint64_t now);

/* Grant the turn to a gang, or take it back from one and grant it to the next. */
void turns_grant(struct turns_gpu *gpu, int member);
void turns_pass_on(struct turns_gpu *gpu);

/* Tells each container what holds for it. Returns the latest time of the next step, always after
 * `now`; UINT64_MAX: the next step waits until a container says something new. */
uint64_t turns_tell(struct turns_gpu *gpu, uint64_t now);

/* Both, of a GPU that no gang has. */
uint64_t turns_step(struct turns_gpu *gpu, uint64_t now);

#endif
