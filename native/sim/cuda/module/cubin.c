#include "cuda/module/cubin.h"
#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
    REGISTERS_SHIFT = 24, /* in the sh_info of code */
    VALUE_FOLLOWS = 4,    /* a format of an entry of .nv.info; in all others it is in the entry */
    MAX_THREADS = 0x05,   /* three words: x, y, z */
    FRAME_SIZE = 0x11,    /* two words: symbol, bytes */
    MIN_STACK_SIZE = 0x12,
    REGISTER_COUNT = 0x2f, /* two words: symbol, registers */
};

/* An image, and what is looked for in it. */
struct reader {
    const char *image;
    Elf64_Ehdr header;
    const char *name;
    struct cubin_function found;
};

static bool open_image(struct reader *reader, const void *image)
{
    if (strncmp(image, ELFMAG, SELFMAG) != 0) /* text may be shorter than that */
        return false;
    reader->image = image;
    memcpy(&reader->header, image, sizeof reader->header);
    return reader->header.e_ident[EI_CLASS] == ELFCLASS64;
}

static Elf64_Shdr section_at(const struct reader *reader, unsigned index)
{
    Elf64_Shdr section;
    const char *table = reader->image + reader->header.e_shoff;
    memcpy(&section, table + index * sizeof section, sizeof section);
    return section;
}

static const char *section_name(const struct reader *reader, const Elf64_Shdr *section)
{
    Elf64_Shdr names = section_at(reader, reader->header.e_shstrndx);
    return reader->image + names.sh_offset + section->sh_name;
}

/* Is it the function's own section of a kind, as `.text.` or `.nv.shared.`? */
static bool is_own(const struct reader *reader, const char *section, const char *kind)
{
    size_t length = strlen(kind);
    return strncmp(section, kind, length) == 0 && strcmp(section + length, reader->name) == 0;
}

/* Does a symbol's number in .nv.info mean the function? */
static bool is_symbol(const struct reader *reader, uint32_t number)
{
    for (unsigned index = 0; index < reader->header.e_shnum; index++) {
        Elf64_Shdr table = section_at(reader, index);
        Elf64_Sym symbol;
        if (table.sh_type != SHT_SYMTAB || number >= table.sh_size / sizeof symbol)
            continue;
        Elf64_Shdr names = section_at(reader, table.sh_link);
        memcpy(&symbol, reader->image + table.sh_offset + number * sizeof symbol, sizeof symbol);
        return strcmp(reader->image + names.sh_offset + symbol.st_name, reader->name) == 0;
    }
    return false;
}

static uint32_t larger(uint32_t left, uint32_t right)
{
    return left > right ? left : right;
}

static void read_entry(struct reader *reader, bool own, unsigned tag, const char *value,
                       unsigned bytes)
{
    uint32_t words[3] = {0};
    memcpy(words, value, bytes < sizeof words ? bytes : sizeof words);
    if (own && tag == MAX_THREADS)
        reader->found.max_threads = words[0] * words[1] * words[2];
    if (own || !is_symbol(reader, words[0]))
        return;
    if (tag == FRAME_SIZE || tag == MIN_STACK_SIZE)
        reader->found.local = larger(reader->found.local, words[1]);
    if (tag == REGISTER_COUNT)
        reader->found.registers = words[1];
}

/* Entries of a format, a tag, and either a short value or the length of what follows. */
static void read_entries(struct reader *reader, const Elf64_Shdr *section, bool own)
{
    const char *at = reader->image + section->sh_offset, *end = at + section->sh_size;
    while (end - at >= 4) {
        uint16_t bytes;
        memcpy(&bytes, at + 2, sizeof bytes);
        bool follows = at[0] == VALUE_FOLLOWS;
        if (follows && bytes <= end - at - 4)
            read_entry(reader, own, (unsigned char)at[1], at + 4, bytes);
        at += 4 + (follows ? bytes : 0);
    }
}

static void read_section(struct reader *reader, const Elf64_Shdr *section)
{
    const char *name = section_name(reader, section);
    if (is_own(reader, name, ".text."))
        reader->found.registers =
            larger(reader->found.registers, section->sh_info >> REGISTERS_SHIFT);
    else if (is_own(reader, name, ".nv.shared."))
        reader->found.shared = (uint32_t)section->sh_size;
    else if (strcmp(name, ".nv.constant3") == 0)
        reader->found.constants = (uint32_t)section->sh_size;
    else if (strcmp(name, ".nv.info") == 0 || is_own(reader, name, ".nv.info."))
        read_entries(reader, section, name[strlen(".nv.info")] != '\0');
}

static bool has_code(const struct reader *reader)
{
    for (unsigned index = 0; index < reader->header.e_shnum; index++) {
        Elf64_Shdr section = section_at(reader, index);
        if (is_own(reader, section_name(reader, &section), ".text."))
            return true;
    }
    return false;
}

struct cubin_function cubin_function(const void *image, const char *name)
{
    struct reader reader = {.name = name};
    if (image == NULL || !open_image(&reader, image) || !has_code(&reader))
        return (struct cubin_function){0};
    for (unsigned index = 0; index < reader.header.e_shnum; index++) {
        Elf64_Shdr section = section_at(&reader, index);
        read_section(&reader, &section);
    }
    return reader.found;
}

static uint64_t beyond(uint64_t end, uint64_t start, uint64_t bytes)
{
    return start + bytes > end ? start + bytes : end;
}

uint64_t cubin_bytes(const void *image)
{
    struct reader reader;
    if (image == NULL || !open_image(&reader, image))
        return 0;
    const Elf64_Ehdr *header = &reader.header;
    uint64_t end =
        beyond(sizeof *header, header->e_phoff, (uint64_t)header->e_phnum * header->e_phentsize);
    end = beyond(end, header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize);
    for (unsigned index = 0; index < header->e_shnum; index++) {
        Elf64_Shdr section = section_at(&reader, index);
        if (section.sh_type != SHT_NOBITS)
            end = beyond(end, section.sh_offset, section.sh_size);
    }
    return end;
}
