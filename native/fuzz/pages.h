/* Using pages with hostile contents, all functions of theirs: shared by the targets.
 *
 * What is not tried: a file that is cut short while it is mapped. The kernel then ends who reads it
 * by SIGBUS, whoever made the file; the shim maps only what it has seen to be long enough, and the
 * files are the manager's, which never cuts them.
 */
#ifndef FUZZ_PAGES_H
#define FUZZ_PAGES_H

#include "fuzz.h"
#include "runtime/session.h"

/* Words put anywhere into a page: of how many there are, places and values, from the input. */
void pages_patch(struct fuzz_reader *reader, void *page, size_t size);

/* As the shim: every function that reads or writes the pages of an attached session. */
void pages_use(struct session *session, struct fuzz_reader *reader);

/* As the manager, on pages that containers can write. */
void pages_manage(struct vcuda_config *config, struct vcuda_books *books,
                  struct fuzz_reader *reader);

#endif
