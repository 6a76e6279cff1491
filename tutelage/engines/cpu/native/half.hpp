// Numbers in bfloat16: the upper halves of float32. They are read into vectors of float32, and rounded to the nearest
// number, of two equally near ones to the even one, when they are written.
#pragma once

#include "vectors.hpp"

namespace {

typedef uint16_t Half;
typedef uint16_t Halves __attribute__((vector_size(BYTES / 2)));
typedef uint16_t UnalignedHalves __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
typedef uint32_t Bits __attribute__((vector_size(BYTES)));

template <int N = PARTS>
INLINE Registers<N> load(const Half *from) {
    if constexpr (N == 1) {
        const Bits bits = __builtin_convertvector(*reinterpret_cast<const UnalignedHalves *>(from), Bits) << 16;
        Register x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    } else {
        return {load<N / 2>(from), load<N / 2>(from + N / 2 * EACH)};
    }
}

// x rounded, in the lower halves.
INLINE Bits rounded_bits(Register x) {
    Bits bits;
    std::memcpy(&bits, &x, sizeof bits);
    const Bits nearest = bits + 0x7fff + (bits >> 16 & 1), quiet = bits | 0x400000;
    return (x == x ? nearest : quiet) >> 16;
}

INLINE Halves rounded(Register x) { return __builtin_convertvector(rounded_bits(x), Halves); }

template <int N>
INLINE void store(Half *to, Registers<N> x) {
    if constexpr (N == 1) {
        *reinterpret_cast<UnalignedHalves *>(to) = rounded(x.x);
    } else {
        store(to, x.low);
        store(to + N / 2 * EACH, x.high);
    }
}

// Stores the first `count` of 16 numbers.
INLINE void put(Half *to, long count, Floats x) {
    if (count == LANES) return store(to, x);
    alignas(64) Half all[LANES];
    store(all, x);
    std::copy_n(all, count, to);
}

// x rounded to bfloat16, in float32.
INLINE Floats rounded_floats(Floats x) {
    return each(x, [](Register part) {
        const Bits bits = rounded_bits(part) << 16;
        Register y;
        std::memcpy(&y, &bits, sizeof y);
        return y;
    });
}

}  // namespace
