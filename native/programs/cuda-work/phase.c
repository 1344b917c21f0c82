#include "phase.h"
#include "words.h"
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int complain(const char *where, const char *why)
{
    fprintf(stderr, "cuda-work: %s: %s\n", where, why);
    return 2;
}

/* Into `words`; 0, or the exit status. */
static int read_file(struct workload *workload, const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return complain(path, strerror(errno));
    size_t size = fread(workload->words, 1, TEXT_AT_MOST, file);
    bool whole = !ferror(file) && size < TEXT_AT_MOST;
    fclose(file);
    if (!whole)
        return complain(path, "cannot be read, or longer than 16 KiB");
    workload->words[size] = '\0';
    return 0;
}

static int take_text(struct workload *workload, const char *text)
{
    if (text[0] == '@')
        return read_file(workload, text + 1);
    if (strlen(text) >= TEXT_AT_MOST)
        return complain("the text", "longer than 16 KiB");
    strcpy(workload->words, text);
    return 0;
}

/* Comments go, any white space becomes a blank, and blanks come alone. */
static void tidy(char *words)
{
    char *out = words;
    for (const char *in = words; *in != '\0'; in++) {
        if (*in == '#')
            in += strcspn(in, "\n") - 1;
        else if (!isspace((unsigned char)*in))
            *out++ = *in;
        else if (out > words && out[-1] != ' ' && out[-1] != ';')
            *out++ = ' ';
    }
    *out = '\0';
}

static int read_phase(struct phase *phase, char *text, unsigned number)
{
    char where[32], complaint[COMPLAINT], copy[TEXT_AT_MOST];
    snprintf(where, sizeof where, "phase %u", number);
    size_t size = strlen(text);
    if (size > 0 && text[size - 1] == ' ')
        text[size - 1] = '\0';
    phase->text = text;
    for (char *rest = strcpy(copy, text), *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word != '\0' && words_enter(phase, word, complaint) != 0)
            return complain(where, complaint);
    return words_finish(phase, complaint) != 0 ? complain(where, complaint) : 0;
}

int workload_read(struct workload *workload, const char *text)
{
    int status = take_text(workload, text);
    if (status != 0)
        return status;
    tidy(workload->words);
    for (char *rest = workload->words, *part; (part = strsep(&rest, ";")) != NULL;) {
        if (*part == '\0' && rest == NULL && workload->count > 0)
            break; /* a `;` at the end */
        if (workload->count == PHASES_AT_MOST)
            return complain("the text", "more than 32 phases");
        unsigned number = workload->count++;
        status = read_phase(&workload->phases[number], part, number + 1);
        if (status != 0)
            return status;
    }
    return 0;
}

unsigned workload_processes(const struct workload *workload)
{
    uint64_t most = 1;
    for (unsigned i = 0; i < workload->count; i++)
        if (workload->phases[i].processes > most)
            most = workload->phases[i].processes;
    return (unsigned)most;
}
