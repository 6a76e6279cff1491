// Pairs of numbers in bfloat16, the first in the lower half, as processors multiply them:
//     sum[i] += x.first * y[i].first + x.second * y[i].second          for 16 pairs y, with sums in float32
// Where a processor has no such instruction, the numbers are widened to float32.
#pragma once

#include <type_traits>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "half.hpp"

namespace {

typedef uint32_t Pair;
typedef uint32_t UnalignedPairs __attribute__((vector_size(BYTES), aligned(4), may_alias));
constexpr int PAIR_ROWS = std::max(1, std::min<int>(LANES, (REGISTERS - 1) / PARTS - 2));  // rows of sums in registers

INLINE Pair read(const Pair *from) {  // whatever the type that it was written as
    Pair x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

#if defined(__AVX512BF16__)

constexpr bool MULTIPLIES_PAIRS = true;

struct Pairs {
    __m512bh x;
};

INLINE Pairs columns_at(const Pair *from) { return {(__m512bh)_mm512_loadu_si512(from)}; }
INLINE Pairs spread(const Pair *x) { return {(__m512bh)_mm512_set1_epi32(static_cast<int>(read(x)))}; }
INLINE void add_product(Floats &sum, Pairs x, Pairs y) {
    sum = Register(_mm512_dpbf16_ps((__m512)sum.x, x.x, y.x));
}

// Stores 8 pairs of each of 16 lines, `step` numbers apart, as columns [8][16]: to[i][r] = x[r][i].
INLINE void store_columns(const Half *x, long step, Pair *to) {
    __m512i rows[8], twos[8], fours[8];  // lines r and r + 8; the pairs of two lines, and of four, side by side
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++)
        rows[r] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(x + r * step))),
                                     _mm256_loadu_si256((const __m256i *)(x + (r + 8) * step)), 1);
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 2) {
        twos[r] = _mm512_unpacklo_epi32(rows[r], rows[r + 1]);
        twos[r + 1] = _mm512_unpackhi_epi32(rows[r], rows[r + 1]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < 8; r += 4)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            fours[r + 2 * i] = _mm512_unpacklo_epi64(twos[r + i], twos[r + 2 + i]);
            fours[r + 2 * i + 1] = _mm512_unpackhi_epi64(twos[r + i], twos[r + 2 + i]);
        }
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(to + i * LANES, _mm512_permutex2var_epi64(fours[i], low, fours[i + 4]));
        _mm512_storeu_si512(to + (i + 4) * LANES, _mm512_permutex2var_epi64(fours[i], high, fours[i + 4]));
    }
}

#else

constexpr bool MULTIPLIES_PAIRS = false;

// The first or the second numbers of 16 pairs.
template <bool SECOND, int N = PARTS>
INLINE Registers<N> widened(const Pair *from) {
    if constexpr (N == 1) {
        const Bits pairs = *reinterpret_cast<const UnalignedPairs *>(from);
        const Bits bits = SECOND ? pairs & 0xffff0000u : pairs << 16;
        Register x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    } else {
        return {widened<SECOND, N / 2>(from), widened<SECOND, N / 2>(from + N / 2 * EACH)};
    }
}

struct Pairs {
    Floats first, second;
};

INLINE Pairs columns_at(const Pair *from) {
    return {in_registers(widened<false>(from)), in_registers(widened<true>(from))};
}
INLINE Pairs spread(const Pair *x) {
    const Pair pair = read(x), parts[2] = {pair << 16, pair & 0xffff0000u};
    float numbers[2];
    std::memcpy(numbers, parts, sizeof numbers);
    return {numbers[0], numbers[1]};
}
INLINE void add_product(Floats &sum, Pairs x, Pairs y) { sum += x.first * y.first, sum += x.second * y.second; }

#endif

// Writes the 16 pairs (first[i], second[i]), rounded.
template <int N>
INLINE void store_pairs(Pair *to, Registers<N> first, Registers<N> second) {
    if constexpr (N == 1) {
        *reinterpret_cast<UnalignedPairs *>(to) = rounded_bits(first.x) | rounded_bits(second.x) << 16;
    } else {
        store_pairs(to, first.low, second.low);
        store_pairs(to + N / 2 * EACH, first.high, second.high);
    }
}

}  // namespace
