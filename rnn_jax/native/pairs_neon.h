// What pairs.h is made of, on Arm's processors of 64 bits: 16 columns are four
// vectors of four sums.
//
// With dot products of bytes (Armv8.2 and newer, Apple's), Numbers are those of
// four rows, and x = 256 h + l is multiplied by its bytes:
//
//     sum n x = 256 sum n h + sum n l
//
// l, from 0 to 255, isn't a signed byte as n is, so that l - 128 takes its place:
// sum n l = sum n (l - 128) + 128 sum n.
#ifndef RNN_JAX_NATIVE_PAIRS_NEON_H_
#define RNN_JAX_NATIVE_PAIRS_NEON_H_

#include "activations.h"

namespace rnn_jax {

#if defined(__ARM_FEATURE_DOTPROD)

constexpr int kDepth = 4;
constexpr int kSumsOfPart = 2;

// The sum of a column: low + 256 high.
struct Sums {
  Integers part[4];  // low
  int32x4_t high[4];
};
inline Integers total(const Sums& sums, int i) {
  auto low = (uint32x4_t)sums.part[i], high = (uint32x4_t)sums.high[i];
  return (Integers)(low + (high << 8));
}
inline void add(Sums& sums, const Sums& more) {
  for (int i = 0; i < 4; ++i) {
    sums.part[i] += more.part[i];
    sums.high[i] = vaddq_s32(sums.high[i], more.high[i]);
  }
}

// Numbers of four rows, column after column.
struct Numbers {
  int8x16_t part[4];
  int32x4_t more[4];  // 128 times their sum, of each column
};
struct SmallNumbers {  // none is negative
  uint8x16_t part[4];
};

inline Numbers unpack_int8(const int8_t* p, int64_t pairs = 2) {
  Numbers n;
  const int8x16_t some = vdupq_n_s8(64), none = vdupq_n_s8(0);
  for (int i = 0; i < 2; ++i, p += 16) {
    auto first = vreinterpretq_s16_s8(vld1q_s8(p));
    auto second = vreinterpretq_s16_s8(pairs > 1 ? vld1q_s8(p + 32) : none);
    n.part[2 * i] = vreinterpretq_s8_s16(vzip1q_s16(first, second));
    n.part[2 * i + 1] = vreinterpretq_s8_s16(vzip2q_s16(first, second));
  }
  for (int i = 0; i < 4; ++i) {
    n.more[i] = vdotq_s32(vdupq_n_s32(0), n.part[i], some);
    n.more[i] = vdotq_s32(n.more[i], n.part[i], some);
  }
  return n;
}

inline SmallNumbers unpack_int4(const uint8_t* p) {
  SmallNumbers n;
  auto first = vreinterpretq_u16_u8(vld1q_u8(p));
  auto second = vreinterpretq_u16_u8(vld1q_u8(p + 16));
  auto left = vreinterpretq_u8_u16(vzip1q_u16(first, second));
  auto right = vreinterpretq_u8_u16(vzip2q_u16(first, second));
  n.part[0] = vandq_u8(left, vdupq_n_u8(15));
  n.part[1] = vandq_u8(right, vdupq_n_u8(15));
  n.part[2] = vshrq_n_u8(left, 4);
  n.part[3] = vshrq_n_u8(right, 4);
  return n;
}

// The lower and the upper bytes of four numbers, over and over.
struct Halved {
  uint8x16_t low;
  int8x16_t high;
};
inline Halved halves_of(const int16_t* x) {
  uint64_t four;
  std::memcpy(&four, x, sizeof(four));
  auto bytes = vreinterpretq_u8_u64(vdupq_n_u64(four));
  return {vuzp1q_u8(bytes, bytes),
          vreinterpretq_s8_u8(vuzp2q_u8(bytes, bytes))};
}

inline void add(Sums& sums, const Numbers& n, const int16_t* x) {
  const Halved of = halves_of(x);
  auto low = vreinterpretq_s8_u8(veorq_u8(of.low, vdupq_n_u8(128)));
  for (int i = 0; i < 4; ++i) {
    auto more = vaddq_s32((int32x4_t)sums.part[i], n.more[i]);
    sums.part[i] = (Integers)vdotq_s32(more, n.part[i], low);
    sums.high[i] = vdotq_s32(sums.high[i], n.part[i], of.high);
  }
}

inline void add(Sums& sums, const SmallNumbers& n, const int16_t* x) {
  const Halved of = halves_of(x);
  for (int i = 0; i < 4; ++i) {
    auto low = (uint32x4_t)sums.part[i];
    sums.part[i] = (Integers)vdotq_u32(low, n.part[i], of.low);
    sums.high[i] =
        vdotq_s32(sums.high[i], vreinterpretq_s8_u8(n.part[i]), of.high);
  }
}

#else  // products of 16-bit numbers

constexpr int kDepth = 2;
constexpr int kSumsOfPart = 1;

struct Sums {
  Integers part[4];
};
inline Integers total(const Sums& sums, int i) { return sums.part[i]; }
inline void add(Sums& sums, const Sums& more) {
  for (int i = 0; i < 4; ++i) sums.part[i] += more.part[i];
}

// Of columns 0 to 7 and 8 to 15: those of row k, and those of row k + 1.
struct Numbers {
  int16x8_t first[2], second[2];
};

inline Numbers unpack_int8(const int8_t* p, int64_t = 1) {
  Numbers n;
  for (int i = 0; i < 2; ++i) {
    auto pairs = vreinterpretq_s16_s8(vld1q_s8(p + 16 * i));
    n.first[i] = vshrq_n_s16(vshlq_n_s16(pairs, 8), 8);
    n.second[i] = vshrq_n_s16(pairs, 8);
  }
  return n;
}

inline Numbers unpack_int4(const uint8_t* p) {
  auto bits = vreinterpretq_u16_u8(vld1q_u8(p));
  auto lowest = [](uint16x8_t x) {
    return vreinterpretq_s16_u16(vandq_u16(x, vdupq_n_u16(15)));
  };
  return {{lowest(bits), lowest(vshrq_n_u16(bits, 4))},
          {lowest(vshrq_n_u16(bits, 8)), lowest(vshrq_n_u16(bits, 12))}};
}

inline void add(Sums& sums, const Numbers& n, const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  auto both = vreinterpret_s16_s32(vdup_n_s32(pair));
  for (int i = 0; i < 2; ++i) {
    auto low = (int32x4_t)sums.part[2 * i];
    auto high = (int32x4_t)sums.part[2 * i + 1];
    low = vmlal_lane_s16(low, vget_low_s16(n.first[i]), both, 0);
    high = vmlal_high_lane_s16(high, n.first[i], both, 0);
    sums.part[2 * i] =
        (Integers)vmlal_lane_s16(low, vget_low_s16(n.second[i]), both, 1);
    sums.part[2 * i + 1] =
        (Integers)vmlal_high_lane_s16(high, n.second[i], both, 1);
  }
}

#endif

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_PAIRS_NEON_H_
