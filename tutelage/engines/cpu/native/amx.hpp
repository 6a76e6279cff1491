// Tiles of AMX: registers of 16 rows of 64 bytes, with products of pairs of numbers in bfloat16,
//     C [16][16] += A [16][16 pairs] B [16 pairs][16],
// in which a sum begins with 32 features, is added to C, and goes on with the next 32. The order depends on neither the
// other rows nor the other columns, and products with A and B transposed and exchanged have the same bits.
//
// The system has to allow the use of tiles, which is asked for once. Without it, pairs are multiplied as in pairs.hpp.
#pragma once

#include "pairs.hpp"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define HAS_TILES 1
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HAS_TILES 0
#endif

namespace {

constexpr long TILE_ROWS = 16, TILE_FEATURES = 32, TILE_PAIRS = TILE_FEATURES / 2;

#if HAS_TILES

// Whether this process may use tiles.
inline bool uses_tiles() {
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    static const bool allowed = syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
    return allowed;
}

// The shapes of the eight tiles: rows, and bytes of a row.
struct alignas(64) TileShapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};

    void set(int tile, long count, long pairs) {
        rows[tile] = static_cast<uint8_t>(count), bytes[tile] = static_cast<uint16_t>(4 * pairs);
    }
    void load() const { _tile_loadconfig(this); }
};

// GCC does not know that tiles are loaded from memory: what was written to it before must be there.
INLINE void finish_writes() { asm volatile("" ::: "memory"); }

#else

constexpr bool uses_tiles() { return false; }

#endif

}  // namespace
