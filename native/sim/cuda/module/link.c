/* Linking: an image of what was added, for the module loader. Nothing is compiled: one cubin alone
 * is its own image, anything else becomes a cubin without functions, whose sections are as large as
 * the code and the variables of all inputs. */
#include "cuda/module/module.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum input { CUBIN, PTX, FAT_BINARY, OBJECT, LIBRARY, NVVM };
enum { WALL_TIME = 2, INFO_BYTES = 4, ERROR_BYTES = 6 }; /* options that are written to */
enum { CUDA_ERROR_INVALID_PTX = 218, EM_CUDA_MACHINE = 190 };

/* options, values: the program's, which keeps them until the end. */
struct linker {
    uint32_t kind;
    unsigned option_count;
    const int *options;
    void **values;
    struct image_sizes sizes;
    unsigned inputs;
    char *single; /* the first input, if it is a cubin */
    size_t single_bytes;
    char *image;
};
typedef struct linker *CUlinkState;

static bool is_linker(const struct linker *linker)
{
    return linker != NULL && linker->kind == LINKER;
}

API CUresult cuLinkCreate_v2(unsigned count, const int *options, void **values, CUlinkState *out)
{
    struct driver *driver;
    struct context *context;
    CUresult result = driver_context(&driver, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (out == NULL || (count > 0 && (options == NULL || values == NULL)))
        return CUDA_ERROR_INVALID_VALUE;
    struct linker *linker = calloc(1, sizeof *linker);
    if (linker == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *linker = (struct linker){
        .kind = LINKER, .option_count = count, .options = options, .values = values};
    *out = linker;
    return CUDA_SUCCESS;
}
ALSO(cuLinkCreate_v2, cuLinkCreate);

static CUresult keep_single(struct linker *linker, const void *image, size_t bytes)
{
    linker->single = malloc(bytes);
    if (linker->single == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(linker->single, image, bytes);
    linker->single_bytes = bytes;
    return CUDA_SUCCESS;
}

/* PTX begins with its version, after comments; a cubin is as long as its header says. */
static CUresult check_input(int type, const char *image, size_t bytes)
{
    if (type == CUBIN)
        return bytes > sizeof(Elf64_Ehdr) && cubin_bytes(image) != 0 && cubin_bytes(image) <= bytes
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_IMAGE;
    if (type == PTX)
        return memmem(image, bytes, ".version", 8) != NULL ? CUDA_SUCCESS
                                                           : (CUresult)CUDA_ERROR_INVALID_PTX;
    return CUDA_SUCCESS;
}

static void count_input(struct linker *linker, int type, const char *image, size_t bytes)
{
    struct image_sizes sizes = {.code = bytes};
    if (type == CUBIN || type == PTX)
        sizes = image_sizes(image);
    linker->sizes.code += sizes.code;
    linker->sizes.variables += sizes.variables;
    linker->inputs++;
}

/* `image` has a 0 behind it. */
static CUresult add(struct linker *linker, int type, const char *image, size_t bytes)
{
    CUresult result = check_input(type, image, bytes);
    if (result == CUDA_SUCCESS && type == CUBIN && linker->inputs == 0)
        result = keep_single(linker, image, bytes);
    if (result == CUDA_SUCCESS)
        count_input(linker, type, image, bytes);
    return result;
}

API CUresult cuLinkAddData_v2(CUlinkState linker, int type, void *image, size_t bytes,
                              const char *name, unsigned count, const int *options, void **values)
{
    (void)name, (void)count, (void)options, (void)values;
    if (!is_linker(linker))
        return CUDA_ERROR_INVALID_HANDLE;
    if (image == NULL || bytes == 0 || type < CUBIN || type > NVVM || linker->image != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    char *text = calloc(1, bytes + 1);
    if (text == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(text, image, bytes);
    CUresult result = add(linker, type, text, bytes);
    free(text);
    return result;
}
ALSO(cuLinkAddData_v2, cuLinkAddData);

API CUresult cuLinkAddFile_v2(CUlinkState linker, int type, const char *path, unsigned count,
                              const int *options, void **values)
{
    void *image;
    size_t bytes;
    if (!is_linker(linker))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = module_read(path, &image, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuLinkAddData_v2(linker, type, image, bytes, path, count, options, values);
    free(image);
    return result;
}
ALSO(cuLinkAddFile_v2, cuLinkAddFile);

/* Two sections, of code and of variables, and the names of sections, which nobody asks for. */
static char *make_cubin(struct image_sizes sizes, size_t *bytes)
{
    enum { NAMES = 1, CODE, VARIABLES, SECTIONS };
    Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
                         .e_type = ET_EXEC,
                         .e_machine = EM_CUDA_MACHINE,
                         .e_version = EV_CURRENT,
                         .e_shoff = sizeof header,
                         .e_ehsize = sizeof header,
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = SECTIONS,
                         .e_shstrndx = NAMES};
    size_t names = sizeof header + SECTIONS * sizeof(Elf64_Shdr);
    Elf64_Shdr sections[SECTIONS] = {
        [NAMES] = {.sh_type = SHT_STRTAB, .sh_offset = names, .sh_size = 1},
        [CODE] = {.sh_type = SHT_PROGBITS,
                  .sh_flags = SHF_ALLOC,
                  .sh_offset = names + 1,
                  .sh_size = sizes.code},
        [VARIABLES] = {.sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = sizes.variables},
    };
    *bytes = names + 1 + sizes.code;
    char *image = calloc(1, *bytes);
    if (image != NULL) {
        memcpy(image, &header, sizeof header);
        memcpy(image + sizeof header, sections, sizeof sections);
    }
    return image;
}

/* There is nothing to log, and linking took no time. */
static void write_options(const struct linker *linker)
{
    for (unsigned i = 0; i < linker->option_count; i++)
        if (linker->options[i] == WALL_TIME || linker->options[i] == INFO_BYTES ||
            linker->options[i] == ERROR_BYTES)
            linker->values[i] = NULL;
}

/* The image is the linker's. */
API CUresult cuLinkComplete(CUlinkState linker, void **image, size_t *size)
{
    if (!is_linker(linker))
        return CUDA_ERROR_INVALID_HANDLE;
    if (image == NULL || linker->inputs == 0 || linker->image != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = linker->single_bytes;
    if (linker->single != NULL && linker->inputs == 1) {
        linker->image = linker->single;
        linker->single = NULL;
    } else {
        linker->image = make_cubin(linker->sizes, &bytes);
    }
    if (linker->image == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    write_options(linker);
    *image = linker->image;
    if (size != NULL)
        *size = bytes;
    return CUDA_SUCCESS;
}

API CUresult cuLinkDestroy(CUlinkState linker)
{
    if (!is_linker(linker))
        return CUDA_ERROR_INVALID_HANDLE;
    linker->kind = NO_OBJECT;
    free(linker->single);
    free(linker->image);
    free(linker);
    return CUDA_SUCCESS;
}
