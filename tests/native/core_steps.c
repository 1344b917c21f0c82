/* A process of a container that dies at its n-th step: `core_steps BOOKS STEP`.
 *
 * Reads from its input the slot it was given, then reserves, gives back and takes back from the
 * dead. Each step of the books is a call of step_pass() (core/step.h); at the n-th it kills itself.
 * Ends with 0 when there were fewer.
 */
#include "core/memory/books.h"
#include "core/peers.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT = 100 };

static long left;

void step_pass(void)
{
    if (--left == 0)
        kill(getpid(), SIGKILL);
}

static int open_books(struct books *books, const char *path)
{
    books->fd = open(path, O_RDWR | O_CLOEXEC);
    if (books->fd < 0 || scanf("%d", &books->slot) != 1)
        return -1;
    books->page = mmap(NULL, sizeof *books->page, PROT_READ | PROT_WRITE, MAP_SHARED, books->fd, 0);
    return books->page == MAP_FAILED ? -1 : peers_join(books);
}

int main(int count, char **words)
{
    struct books books = {0};
    left = count == 3 ? atol(words[2]) : 0;
    if (count != 3 || open_books(&books, words[1]) != 0)
        return 2;
    if (books_reserve(&books, 0, 30, LIMIT) != 0 ||
        books_take(&books, BOOKS_CONTEXT, 0, 10, LIMIT) != 0)
        return 3;
    books_release(&books, 0, 10);
    if (books_reserve(&books, 0, 61, LIMIT) == 0) /* more than there is if nobody is dead */
        books_release(&books, 0, 61);
    books_release(&books, 0, 20);
    books_give_back(&books, BOOKS_CONTEXT, 0, 10);
    return 0;
}
