/* The images that a program loads, as far as their size goes: nothing is compiled.
 *
 * A cubin is an ELF file whose allocated sections go to the device; those without bits are
 * variables. Of PTX the variables are the declarations in `.global` and `.const`, and the text
 * stands for the code. A fat binary counts as all of its bytes.
 */
#include "core/image.h"
#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FAT_WRAPPER = 0x466243b1, FAT_HEADER = (int)0xba55ed50, TEXT_LIMIT = 64 << 20 };

/* Shared memory is on the chip, wherever a cubin lists it. */
static bool on_chip(const char *image, const Elf64_Ehdr *header, const Elf64_Shdr *section)
{
    Elf64_Shdr names;
    if (header->e_shstrndx == SHN_UNDEF)
        return false;
    memcpy(&names, image + header->e_shoff + header->e_shstrndx * sizeof names, sizeof names);
    return strncmp(image + names.sh_offset + section->sh_name, ".nv.shared", 10) == 0;
}

static struct image_sizes cubin_sizes(const char *image)
{
    struct image_sizes sizes = {0};
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    for (unsigned index = 0; index < header.e_shnum; index++) {
        Elf64_Shdr section;
        memcpy(&section, image + header.e_shoff + index * sizeof section, sizeof section);
        if (!(section.sh_flags & SHF_ALLOC) || on_chip(image, &header, &section))
            continue;
        if (section.sh_type == SHT_NOBITS)
            sizes.variables += section.sh_size;
        else
            sizes.code += section.sh_size;
    }
    return sizes;
}

/* Header: magic, version, size of the header, size of what follows it. */
static struct image_sizes fat_sizes(const char *image)
{
    uint64_t bytes;
    memcpy(&bytes, image + 8, sizeof bytes);
    return (struct image_sizes){.code = bytes};
}

/* Bytes of one element of a type that is written `.b8`, `.f32`, …; 0 for another word. */
static uint64_t element_bytes(const char *word)
{
    if (word[0] != '.' || strchr("busf", word[1]) == NULL)
        return 0;
    uint64_t bits = strtoul(word + 2, NULL, 10);
    return bits % 8 == 0 ? bits / 8 : 0;
}

/* One declaration from behind its state space up to what ends it. */
static uint64_t declared_bytes(const char *text)
{
    uint64_t bytes = 0;
    for (; *text != '\0' && strchr(";=,)", *text) == NULL; text++) {
        if (*text == '[')
            bytes *= strtoull(text + 1, NULL, 0);
        else if (strncmp(text, ".v2 ", 4) == 0 || strncmp(text, ".v4 ", 4) == 0)
            bytes = (uint64_t)(text[2] - '0'); /* stands before the type */
        else if (element_bytes(text) > 0)
            bytes = (bytes > 0 ? bytes : 1) * element_bytes(text);
    }
    return bytes;
}

/* The state space is a word of its own; `ld.global` is an instruction. */
static uint64_t space_bytes(const char *text, const char *space)
{
    uint64_t bytes = 0;
    size_t length = strlen(space);
    for (const char *at = strstr(text, space); at != NULL; at = strstr(at + 1, space))
        if ((at == text || strchr(" \t\n\r", at[-1]) != NULL) && strchr(" \t\n\r", at[length]))
            bytes += declared_bytes(at + length);
    return bytes;
}

static struct image_sizes text_sizes(const char *text)
{
    return (struct image_sizes){.code = strnlen(text, TEXT_LIMIT),
                                .variables =
                                    space_bytes(text, ".global") + space_bytes(text, ".const")};
}

struct image_sizes image_sizes(const void *image)
{
    uint32_t magic = 0;
    if (*(const char *)image != '\0')
        memcpy(&magic, image, sizeof magic);
    if (magic == FAT_WRAPPER) /* magic, version, pointer to the header */
        memcpy(&image, (const char *)image + 8, sizeof image);
    if (magic == FAT_WRAPPER || magic == (uint32_t)FAT_HEADER)
        return fat_sizes(image);
    return memcmp(&magic, ELFMAG, SELFMAG) == 0 ? cubin_sizes(image) : text_sizes(image);
}
