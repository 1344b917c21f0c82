#include "cuda/array/format.h"

enum subsampling { S444, S422, S420 };

static bool simple(unsigned bytes, unsigned channels, unsigned number, struct array_format *out)
{
    *out = (struct array_format){1, 1, {{bytes * channels, channels, number, 0, 0}}};
    return channels == 1 || channels == 2 || channels == 4;
}

/* All of an element in one place, whatever its channels are. */
static bool packed(unsigned bytes, unsigned number, struct array_format *out)
{
    *out = (struct array_format){1, 1, {{bytes, 1, number, 0, 0}}};
    return true;
}

static bool blocks(unsigned bytes, unsigned number, struct array_format *out)
{
    *out = (struct array_format){1, 4, {{bytes, 1, number, 0, 0}}};
    return true;
}

/* Brightness in full, then both colours: in one plane of two channels, or in two planes. */
static bool video(unsigned bytes, unsigned planes, enum subsampling how, struct array_format *out)
{
    unsigned component = bytes == 1 ? UNSIGNED_INT8 : UNSIGNED_INT16;
    unsigned right = how != S444, down = how == S420, channels = planes == 2 ? 2 : 1;
    struct array_plane colour = {bytes * channels, channels, component, right, down};
    *out = (struct array_format){planes, 1, {{bytes, 1, component, 0, 0}, colour, colour}};
    return true;
}

/* The formats that are numbered without a gap by width, subsampling and planes. */
static bool numbered_video(unsigned number, struct array_format *out)
{
    static const enum subsampling order[] = {S420, S422, S444};
    unsigned index = number - UINT8_SEMIPLANAR_420;
    return video(1 + index % 2, index < 6 ? 2 : 3, order[index % 6 / 2], out);
}

/* BC1 and BC4 make 8 bytes of a block, the others 16. */
static bool compressed(unsigned number, struct array_format *out)
{
    unsigned kind = 1 + (number - BC1_UNORM) / 2;
    return blocks(kind == 1 || kind == 4 ? 8 : 16, number, out);
}

/* UNORM and SNORM, of 8 and 16 bits, of 1, 2 and 4 channels, in this order. */
static bool normalised(unsigned number, unsigned channels, struct array_format *out)
{
    static const unsigned named[] = {1, 2, 4};
    unsigned index = (number - UNORM_INT8X1) % 6;
    return channels == named[index % 3] && simple(1 + index / 3, channels, number, out);
}

static bool named_video(unsigned number, struct array_format *out)
{
    switch (number) {
    case NV12:
        return video(1, 2, S420, out);
    case NV16:
        return video(1, 2, S422, out);
    case YUV444_8BIT_SEMIPLANAR:
        return video(1, 2, S444, out);
    case P010:
    case P016:
        return video(2, 2, S420, out);
    case P210:
    case P216:
        return video(2, 2, S422, out);
    case YUV444_16BIT_SEMIPLANAR:
        return video(2, 2, S444, out);
    case Y444_PLANAR8:
        return video(1, 3, S444, out);
    case Y444_PLANAR10:
        return video(2, 3, S444, out);
    default:
        return false;
    }
}

static bool packed_format(unsigned number, struct array_format *out)
{
    switch (number) {
    case UINT8_PACKED_422:
    case YUY2:
        return packed(2, number, out);
    case UNORM_INT_101010_2:
    case UINT8_PACKED_444:
    case Y210:
    case Y216:
    case AYUV:
    case Y410:
        return packed(4, number, out);
    case Y416:
        return packed(8, number, out);
    default:
        return false;
    }
}

static bool integer_or_float(unsigned number, unsigned channels, struct array_format *out)
{
    switch (number) {
    case UNSIGNED_INT8:
    case SIGNED_INT8:
        return simple(1, channels, number, out);
    case UNSIGNED_INT16:
    case SIGNED_INT16:
    case HALF:
        return simple(2, channels, number, out);
    case UNSIGNED_INT32:
    case SIGNED_INT32:
    case FLOAT:
        return simple(4, channels, number, out);
    default:
        return false;
    }
}

bool array_format(unsigned number, unsigned channels, struct array_format *out)
{
    if (channels < 1 || channels > 4)
        return false;
    if (number >= UINT8_SEMIPLANAR_420 && number <= UINT16_PLANAR_444)
        return numbered_video(number, out);
    if (number >= BC1_UNORM && number <= BC7_UNORM_SRGB)
        return compressed(number, out);
    if (number >= UNORM_INT8X1 && number <= SNORM_INT16X4)
        return normalised(number, channels, out);
    return integer_or_float(number, channels, out) || packed_format(number, out) ||
           named_video(number, out);
}
