#include "core/memory/image.h"

#include <elf.h>
#include <string.h>

/* Of a fat binary: of what points to it, and of itself. */
static const uint32_t wrapper_magic = 0x466243b1, fat_magic = 0xba55ed50;

enum {
    MACHINE_CUDA = 190, /* e_machine of a cubin */
    SECTION_TABLE_LIMIT = 1 << 30,
};

static uint64_t sum(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

static uint64_t product(uint64_t left, uint64_t right)
{
    uint64_t result;
    return __builtin_mul_overflow(left, right, &result) ? UINT64_MAX : result;
}

static Elf64_Shdr section_at(const char *image, const Elf64_Ehdr *header, unsigned index)
{
    Elf64_Shdr section;
    memcpy(&section, image + header->e_shoff + index * sizeof section, sizeof section);
    return section;
}

/* Memory on the chip is declared like other memory: by its name alone it is told apart. */
static int is_shared(const char *names, const Elf64_Shdr *section)
{
    const char *prefix = ".nv.shared";
    return names != NULL && strncmp(names + section->sh_name, prefix, strlen(prefix)) == 0;
}

/* Of the sections that have none of these flags. */
static uint64_t cubin_bytes(const char *image, uint64_t without)
{
    uint64_t bytes = 0;
    const char *names = NULL;
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != MACHINE_CUDA ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > SECTION_TABLE_LIMIT)
        return 0;
    if (header.e_shstrndx != SHN_UNDEF && header.e_shstrndx < header.e_shnum)
        names = image + section_at(image, &header, header.e_shstrndx).sh_offset;
    for (unsigned index = 0; index < header.e_shnum; index++) {
        Elf64_Shdr section = section_at(image, &header, index);
        if ((section.sh_flags & SHF_ALLOC) && !(section.sh_flags & without) &&
            !is_shared(names, &section))
            bytes = sum(bytes, section.sh_size);
    }
    return bytes;
}

static int is_space(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r';
}

/* Digits as C writes them, octal aside; what is no number is 0. */
static uint64_t number(const char *text)
{
    uint64_t value = 0, base = 10;
    const char *digits = "0123456789abcdef", *found;
    if (text[0] == '0' && (text[1] | 0x20) == 'x') {
        base = 16;
        text += 2;
    }
    while (*text != '\0' && (found = strchr(digits, *text | 0x20)) != NULL &&
           (uint64_t)(found - digits) < base) {
        value = sum(product(value, base), (uint64_t)(found - digits));
        text++;
    }
    return value;
}

/* Bytes of a type that is written `.b8`, `.f32`, …; 0 for another word. */
static uint64_t type_bytes(const char *word)
{
    if (word[0] != '.' || word[1] == '\0' || strchr("busf", word[1]) == NULL)
        return 0;
    return number(word + 2) / 8;
}

/* The bytes of one declaration, from behind its state space to what ends it. Without a type it is a
 * parameter that points there. */
static uint64_t declaration_bytes(const char *text)
{
    uint64_t lanes = 1, element = 0, count = 1;
    for (; *text != '\0' && strchr(";=,)", *text) == NULL; text++) {
        if (*text == '[')
            count = product(count, number(text + 1));
        else if (text[0] == '.' && text[1] == 'v' && is_space(text[3]))
            lanes = number(text + 2);
        else if (element == 0)
            element = type_bytes(text);
    }
    return product(product(lanes, element), count);
}

/* A state space is a word of its own: `ld.global` is an instruction. */
static int is_space_word(const char *text, const char *at, size_t length)
{
    return (at == text || is_space(at[-1])) && is_space(at[length]);
}

static uint64_t variable_bytes(const char *text, const char *space)
{
    uint64_t bytes = 0;
    size_t length = strlen(space);
    for (const char *at = strstr(text, space); at != NULL; at = strstr(at + length, space))
        if (is_space_word(text, at, length))
            bytes = sum(bytes, declaration_bytes(at + length));
    return bytes;
}

/* Text begins with a directive, a comment or a blank. */
static int is_text(const char *image)
{
    return image[0] != '\0' && (image[0] == '.' || image[0] == '/' || is_space(image[0]));
}

static uint64_t bytes_without(const void *image, uint64_t flags)
{
    const char *bytes = image;
    if (image == NULL || bytes[0] == '\0')
        return 0;
    if (is_text(bytes))
        return sum(variable_bytes(bytes, ".global"), variable_bytes(bytes, ".const"));
    return bytes[0] == ELFMAG0 && memcmp(image, ELFMAG, SELFMAG) == 0 ? cubin_bytes(bytes, flags)
                                                                      : 0;
}

uint64_t image_bytes(const void *image)
{
    return bytes_without(image, 0);
}

uint64_t image_variables(const void *image)
{
    return bytes_without(image, SHF_EXECINSTR);
}

uint64_t image_estimate(const void *image)
{
    enum { PAGE = 64 * 1024 };
    uint64_t bytes = image_bytes(image);
    if (image != NULL && is_text(image))
        bytes = sum(bytes, strlen(image));
    return bytes == 0 ? 0 : sum(bytes, 2 * PAGE - 1) / PAGE * PAGE; /* code and variables apart */
}

static uint32_t magic_of(const void *image)
{
    uint32_t magic = 0;
    if (image != NULL && *(const char *)image != '\0')
        memcpy(&magic, image, sizeof magic);
    return magic;
}

uint64_t image_extent(const void *image)
{
    uint64_t bytes;
    if (magic_of(image) == wrapper_magic) /* magic, version, pointer */
        memcpy(&image, (const char *)image + 8, sizeof image);
    if (magic_of(image) != fat_magic)
        return image_bytes(image);
    memcpy(&bytes, (const char *)image + 8, sizeof bytes); /* magic, version, size of the header */
    return bytes;
}
