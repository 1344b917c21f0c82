/* What the elements of an array are: the formats the driver API documents, plane by plane. */
#ifndef SIM_CUDA_ARRAY_FORMAT_H
#define SIM_CUDA_ARRAY_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

enum { ARRAY_PLANES = 3 };

enum array_format_number {
    UNSIGNED_INT8 = 0x01,
    UNSIGNED_INT16 = 0x02,
    UNSIGNED_INT32 = 0x03,
    SIGNED_INT8 = 0x08,
    SIGNED_INT16 = 0x09,
    SIGNED_INT32 = 0x0a,
    HALF = 0x10,
    FLOAT = 0x20,
    UNORM_INT_101010_2 = 0x50,
    UINT8_PACKED_422 = 0x51,
    UINT8_PACKED_444 = 0x52,
    UINT8_SEMIPLANAR_420 = 0x53, /* then UINT16; 422 and 444 likewise; the six PLANAR ones after */
    UINT16_PLANAR_444 = 0x5e,
    BC1_UNORM = 0x91, /* each kind of block twice, but for the single channel formats */
    BC7_UNORM_SRGB = 0x9e,
    P010 = 0x9f,
    P016 = 0xa1,
    NV16,
    P210,
    P216,
    YUY2,
    Y210,
    Y216,
    AYUV,
    Y410,
    NV12 = 0xb0,
    Y416,
    Y444_PLANAR8,
    Y444_PLANAR10,
    YUV444_8BIT_SEMIPLANAR,
    YUV444_16BIT_SEMIPLANAR,
    UNORM_INT8X1 = 0xc0,
    SNORM_INT16X4 = 0xcb,
};

/* One plane: `bytes` for each of its elements, of which there is one for every 1 << right by
 * 1 << down elements of the array. */
struct array_plane {
    unsigned bytes;
    unsigned channels;
    unsigned component; /* the format of the plane taken by itself */
    unsigned right;
    unsigned down;
};

struct array_format {
    unsigned planes;
    unsigned block; /* 4 where 4 by 4 elements are compressed into `bytes`, else 1 */
    struct array_plane plane[ARRAY_PLANES];
};

/* False for a format that does not exist, or not with so many channels. */
bool array_format(unsigned number, unsigned channels, struct array_format *out);

#endif
