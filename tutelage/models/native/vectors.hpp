// Vectors of 16 floats in as many registers as this processor needs for them.
//
// A register is a vector of GCC's and Clang's extensions. The 16 are spelt out as several registers, since GCC keeps
// vectors that are wider than a register in memory: sums of products then run at a tenth of the speed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

#define INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int BYTES = 64, REGISTERS = 32;  // of a register, and how many there are
#elif defined(__AVX__)
constexpr int BYTES = 32, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int BYTES = 16, REGISTERS = 32;
#else
constexpr int BYTES = 16, REGISTERS = 16;
#endif

constexpr long LANES = 16;
constexpr int EACH = BYTES / 4, PARTS = LANES / EACH;  // floats of a register, and registers of a vector

typedef float Register __attribute__((vector_size(BYTES)));
typedef int32_t Whole __attribute__((vector_size(BYTES)));
typedef float Anywhere __attribute__((vector_size(BYTES), aligned(4), may_alias));

struct Floats {
    Register parts[PARTS];

    Floats() = default;
    INLINE Floats(float x) {
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) parts[i] = x - Register{};
    }
    INLINE float operator[](long i) const { return parts[i / EACH][i % EACH]; }
};

INLINE Floats load(const float *from) {
    Floats y;
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) y.parts[i] = *reinterpret_cast<const Anywhere *>(from + i * EACH);
    return y;
}

INLINE void store(float *to, Floats x) {
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) *reinterpret_cast<Anywhere *>(to + i * EACH) = x.parts[i];
}

// x, which stays where it is: GCC would read it again for each of its uses, and then waits for reading.
INLINE Floats held(Floats x) {
#if defined(__x86_64__)
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) asm("" : "+v"(x.parts[i]));
#elif defined(__aarch64__)
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) asm("" : "+w"(x.parts[i]));
#endif
    return x;
}

// The first `count` of 16 numbers.
INLINE void put(float *to, long count, Floats x) {
    if (count == LANES) return store(to, x);
    for (long i = 0; i < count; i++) to[i] = x[i];
}

// work(a, b) of each register.
template <class Work>
INLINE Floats each(Floats a, Floats b, const Work &work) {
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) a.parts[i] = work(a.parts[i], b.parts[i]);
    return a;
}

INLINE Floats operator+(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x + y; });
}
INLINE Floats operator-(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x - y; });
}
INLINE Floats operator*(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x * y; });
}
INLINE Floats operator/(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x / y; });
}
INLINE Floats operator-(Floats x) { return -1.0f * x; }
INLINE Floats &operator+=(Floats &a, Floats b) { return a = a + b; }

// Lane by lane the larger of two; b where one is none.
INLINE Floats larger(Floats a, Floats b) {
    return each(a, b, [](Register x, Register y) { return x > y ? x : y; });
}

typedef float Four __attribute__((vector_size(16)));

// From 16 numbers to four: join(join(0, 2), join(1, 3)).
template <class Join>
INLINE Four quartered(Floats x, const Join &join) {
    Four part[4];
    std::memcpy(part, &x, sizeof x);
    return join(join(part[0], part[2]), join(part[1], part[3]));
}

INLINE float sum(Floats x) {
    const Four four = quartered(x, [](Four a, Four b) { return a + b; });
    return (four[0] + four[2]) + (four[1] + four[3]);
}

INLINE float largest(Floats x) {
    const Four four = quartered(x, [](Four a, Four b) { return a > b ? a : b; });
    return std::max(std::max(four[0], four[2]), std::max(four[1], four[3]));
}

// e^x = 2^n e^r with n whole and |r| <= ln 2 / 2, e^r as Cephes' polynomial. 0 below -87.3, finite above 88.4.
INLINE Register exponential(Register x) {
    const Register least = -87.33654f - Register{}, most = 88.37626f - Register{};
    const Register magic = 12582912.0f - Register{};  // 1.5 * 2^23 rounds
    const Whole vanishes = x < least;
    x = vanishes ? least : x;
    x = x > most ? most : x;
    const Register shifted = x * 1.44269504088896341f + magic;
    const Register whole = shifted - magic;
    const Register r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
    Register y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r + 1.0f;
    const Whole power = (__builtin_convertvector(whole, Whole) + 127) << 23;
    Register scale;
    std::memcpy(&scale, &power, sizeof scale);
    return vanishes ? Register{} : y * scale;
}

INLINE Floats exponential(Floats x) {
#pragma GCC unroll 4
    for (int i = 0; i < PARTS; i++) x.parts[i] = exponential(x.parts[i]);
    return x;
}

INLINE Floats silu(Floats x) { return x / (1.0f + exponential(-x)); }

}  // namespace
