#include "options.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAD_USAGE = 2 };
enum kind { FLAG, SIZE, TIME, COUNT };

struct unit {
    const char *name;
    double factor;
};

static const struct unit sizes[] = {{"", 1},         {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                    {"GiB", 0x1p30}, {"TiB", 0x1p40}, {NULL, 0}};
static const struct unit times[] = {{"", 1e9},   {"s", 1e9}, {"ms", 1e6},
                                    {"us", 1e3}, {"ns", 1},  {NULL, 0}};
static const struct unit counts[] = {{"", 1}, {NULL, 0}};

static const struct unit *const units[] = {[SIZE] = sizes, [TIME] = times, [COUNT] = counts};
static const char *const examples[] = {[SIZE] = "256MiB", [TIME] = "2ms", [COUNT] = "1"};

struct option {
    const char *name;
    enum kind kind;
    size_t offset;
};

static const struct option known[] = {
    {"--block", SIZE, offsetof(struct options, block)},
    {"--total", SIZE, offsetof(struct options, total)},
    {"--memory", SIZE, offsetof(struct options, memory)},
    {"--kernel", TIME, offsetof(struct options, kernel)},
    {"--seconds", TIME, offsetof(struct options, seconds)},
    {"--hold", TIME, offsetof(struct options, hold)},
    {"--device", COUNT, offsetof(struct options, device)},
    {"--until-refused", FLAG, offsetof(struct options, until_refused)},
    {"--sync-each", FLAG, offsetof(struct options, sync_each)},
};

static int complain(const char *what, const char *word)
{
    fprintf(stderr, "cuda-play: %s: %s\n", what, word);
    return BAD_USAGE;
}

/* A number and a unit, such as `1.5GiB`. */
static bool read_amount(const char *text, enum kind kind, uint64_t *out)
{
    char *rest;
    double number = strtod(text, &rest);
    if (rest == text || !isfinite(number) || number < 0)
        return false;
    for (const struct unit *unit = units[kind]; unit->name != NULL; unit++) {
        if (strcmp(rest, unit->name) != 0 || number * unit->factor > 0x1p62)
            continue;
        *out = (uint64_t)(number * unit->factor + 0.5);
        return true;
    }
    return false;
}

/* Whether the verb's list holds the word. */
static bool takes(const struct verb *verb, const char *word)
{
    size_t size = strlen(word);
    for (const char *at = verb->options; (at = strstr(at, word)) != NULL; at += size)
        if (at[size] == ' ' || at[size] == '\0')
            return true;
    return false;
}

static const struct option *find(const struct verb *verb, const char *word)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, word) == 0 && takes(verb, word))
            return &known[i];
    return NULL;
}

static int refuse_value(const struct option *option, const char *value)
{
    fprintf(stderr, "cuda-play: %s: %s: write for example %s\n", option->name,
            value != NULL ? value : "needs a value", examples[option->kind]);
    return BAD_USAGE;
}

/* The verb's options into `options`. 0, or the exit status. */
static int read_options(const struct verb *verb, char **words, struct options *options)
{
    for (; *words != NULL; words++) {
        const struct option *option = find(verb, *words);
        if (option == NULL)
            return complain("unknown option", *words);
        char *field = (char *)options + option->offset;
        if (option->kind == FLAG) {
            *(bool *)field = true;
            continue;
        }
        const char *value = words[1];
        if (value == NULL || !read_amount(value, option->kind, (uint64_t *)field))
            return refuse_value(option, value);
        words++;
    }
    return 0;
}

int options_run(const struct verb *verbs, const char *usage, int count, char **words)
{
    struct options options = {0};
    if (count < 2 || strcmp(words[1], "--help") == 0) {
        fputs(usage, count < 2 ? stderr : stdout);
        return count < 2 ? BAD_USAGE : 0;
    }
    for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
        if (strcmp(verb->name, words[1]) != 0)
            continue;
        int status = read_options(verb, words + 2, &options);
        return status != 0 ? status : verb->run(&options);
    }
    return complain("unknown verb, try --help", words[1]);
}
