/* CRC-32 (IEEE 802.3; the one of zlib, gzip and Java), for records of a hundred bytes to a few KiB.
 *
 * Bytes are a polynomial over GF(2), the first bit being the highest power; their CRC is the remainder of
 * that polynomial times x^32 after division by P. So with a message cut into words of 64 bits, d[w] being
 * the one that has w words after it, the CRC is the remainder of a dot product:
 *
 *     sum over w of  d[w] * (x^(64 w + 32) mod P)
 *
 * The second factors, `weights`, do not depend on the message. PCLMULQDQ multiplies 64 by 64 bits without
 * carries, VPCLMULQDQ two or four such pairs. No product waits for another, and one Barrett division reduces
 * their sum to 32 bits. A message longer than the table of weights is taken in pieces, the remainder of one
 * being added to the front of the next. Multiplying by x^k mod P in place of x^k, and the division, are those
 * of V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
 *
 * All is bit-reflected: the lowest bit of a word is its highest power. The product of two reflected words of
 * 64 bits fills bits 0 to 126 of a register whose bit 127 is x^0. So it comes out times x, and the constants
 * are one power lower to make up for that. Zero bits in front change no polynomial: they fill up registers.
 */
#ifndef RMQ_CRC32_H
#define RMQ_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 9)
#define RMQ_CRC32_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define RMQ_CRC32_ARM 1
#include <sys/auxv.h>
#endif

typedef uint32_t (*rmq_crc32_function)(uint32_t crc, const unsigned char *data, size_t size);

static rmq_crc32_function rmq_crc32_chosen = NULL; /* none before rmq_crc32_init() */
static const char *rmq_crc32_chosen_name = "";

/* --- polynomials of degree below 32, reflected: bit 31 is x^0, bit 0 is x^31 ------------------------ */

#define RMQ_CRC32_P 0xEDB88320u /* P without its x^32 */

static inline uint32_t rmq_crc32_times_x(uint32_t value) { return value >> 1 ^ (value & 1 ? RMQ_CRC32_P : 0); }

static inline uint32_t rmq_crc32_times_x_to(uint32_t value, int power)
{
    while (power-- > 0) value = rmq_crc32_times_x(value);
    return value;
}

/* --- portable: eight bytes at a time, by tables ------------------------------------------------------ */

static uint32_t rmq_crc32_tables[8][256]; /* [n][byte]: that byte's remainder when n bytes follow it */

static void rmq_crc32_build_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        rmq_crc32_tables[0][byte] = rmq_crc32_times_x_to(byte, 8);
        for (int n = 1; n < 8; n++) rmq_crc32_tables[n][byte] = rmq_crc32_times_x_to(rmq_crc32_tables[n - 1][byte], 8);
    }
}

static inline uint64_t rmq_crc32_load(const unsigned char *at) /* little-endian on every machine */
{
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static uint32_t rmq_crc32_portable(uint32_t crc, const unsigned char *data, size_t size)
{
    uint32_t state = ~crc;
    for (; size >= 8; data += 8, size -= 8) {
        const uint64_t word = rmq_crc32_load(data) ^ state;
        state = rmq_crc32_tables[7][word & 255] ^ rmq_crc32_tables[6][word >> 8 & 255]
              ^ rmq_crc32_tables[5][word >> 16 & 255] ^ rmq_crc32_tables[4][word >> 24 & 255]
              ^ rmq_crc32_tables[3][word >> 32 & 255] ^ rmq_crc32_tables[2][word >> 40 & 255]
              ^ rmq_crc32_tables[1][word >> 48 & 255] ^ rmq_crc32_tables[0][word >> 56];
    }
    while (size--) state = state >> 8 ^ rmq_crc32_tables[0][(state ^ *data++) & 255];
    return ~state;
}

#ifdef RMQ_CRC32_X86
/* --- x86: the dot product, and its division ---------------------------------------------------------- */

/* weights[RMQ_CRC32_WORDS - 1 - w] is x^(64 w + 31) mod P in the low half of a word, that is, times x^32: a
 * product then has the form (below x^96) times x^32. They descend as the words of a message do, so that one
 * load of weights fits one load of the message. 1280 bytes: a body of 1 KiB and its header are one piece. */
#define RMQ_CRC32_WORDS 160
#define RMQ_CRC32_PIECE (8 * (size_t)RMQ_CRC32_WORDS)
static uint64_t rmq_crc32_weights[RMQ_CRC32_WORDS] __attribute__((aligned(64)));

static unsigned char rmq_crc32_moves[128]; /* 0, 1, 2, ... 127: read from n on, it rotates 64 bytes by n */

#define RMQ_CRC32_QUOTIENT 0xB4E5B025F7011641u /* floor(x^96 / P) / x: its upper 64 of 65 bits, reflected */
#define RMQ_CRC32_DIVISOR 0x1DB710641u         /* P * x^31: the 33 bits of P, reflected */

#define RMQ_CRC32_128 __attribute__((target("sse4.1,pclmul")))
#define RMQ_CRC32_256 __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define RMQ_CRC32_512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,pclmul,vpclmulqdq")))

static void rmq_crc32_build_constants(void)
{
    uint32_t power = 1; /* x^31 */
    for (int i = 0; i < 128; i++) rmq_crc32_moves[i] = (unsigned char)i;
    for (int w = 0; w < RMQ_CRC32_WORDS; w++, power = rmq_crc32_times_x_to(power, 64))
        rmq_crc32_weights[RMQ_CRC32_WORDS - 1 - w] = power;
}

/* The weights of the last `size` bytes of a message. */
static inline const void *rmq_crc32_weights_at(size_t size) { return rmq_crc32_weights + RMQ_CRC32_WORDS - size / 8; }

static inline size_t rmq_crc32_smaller(size_t one, size_t other) { return one < other ? one : other; }

/* A sum of products, reduced: the remainder in the lowest 32 bits, zeros above.
 * floor(x^96 / P) has 65 bits. Its last one would add nothing from x^64 on, where the quotient is, and left
 * out, the others are one power lower, which is just what the reflected product makes good. */
RMQ_CRC32_128 static inline __m128i rmq_crc32_divide(__m128i sum)
{
    const __m128i constants = _mm_set_epi64x((long long)RMQ_CRC32_DIVISOR, (long long)RMQ_CRC32_QUOTIENT);
    const __m128i quotient = _mm_clmulepi64_si128(sum, constants, 0x00);
    const __m128i product = _mm_clmulepi64_si128(quotient, constants, 0x10);
    return _mm_srli_si128(_mm_xor_si128(product, sum), 8);
}

/* `state`, standing at the front of the last `size` bytes, times its weight. */
RMQ_CRC32_128 static inline __m128i rmq_crc32_front(__m128i state, size_t size)
{
    return _mm_clmulepi64_si128(state, _mm_loadl_epi64((const __m128i *)rmq_crc32_weights_at(size)), 0x00);
}

/* What a head of less than four bytes leaves of the state, for the bytes that follow. */
RMQ_CRC32_128 static inline __m128i rmq_crc32_left_over(uint32_t state, size_t head, size_t size)
{
    return head < 4 ? rmq_crc32_front(_mm_cvtsi32_si128((int)(state >> 8 * head)), size) : _mm_setzero_si128();
}

/* --- PCLMULQDQ: 16 bytes at a time ------------------------------------------------------------------- */

RMQ_CRC32_128 static inline __m128i rmq_crc32_load_128(const void *at) { return _mm_loadu_si128((const __m128i *)at); }

RMQ_CRC32_128 static inline __m128i rmq_crc32_add_128(__m128i sum, __m128i block, size_t size)
{
    const __m128i weights = rmq_crc32_load_128(rmq_crc32_weights_at(size));
    sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(block, weights, 0x00));
    return _mm_xor_si128(sum, _mm_clmulepi64_si128(block, weights, 0x11));
}

/* The first `head` bytes (1..16) of at least 16, with the state added, moved to the end of a register. */
RMQ_CRC32_128 static inline __m128i rmq_crc32_head_128(uint32_t state, const unsigned char *data, size_t head)
{
    static const signed char moves[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                          0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15};
    const __m128i block = _mm_xor_si128(rmq_crc32_load_128(data), _mm_cvtsi32_si128((int)state));
    return _mm_shuffle_epi8(block, rmq_crc32_load_128(moves + head)); /* -1: a zero byte */
}

RMQ_CRC32_128 static uint32_t rmq_crc32_pclmul(uint32_t crc, const unsigned char *data, size_t size)
{
    if (size < 16) return rmq_crc32_portable(crc, data, size);
    const size_t head = ((size - 1) & 15) + 1; /* what follows it is whole registers */
    size -= head;
    size_t left = rmq_crc32_smaller(size, RMQ_CRC32_PIECE - 16); /* of this piece */
    __m128i sum = rmq_crc32_left_over(~crc, head, left);
    sum = rmq_crc32_add_128(sum, rmq_crc32_head_128(~crc, data, head), left + 16);
    for (data += head;;) {
        for (size -= left; left > 0; left -= 16, data += 16)
            sum = rmq_crc32_add_128(sum, rmq_crc32_load_128(data), left);
        const __m128i state = rmq_crc32_divide(sum);
        if (size == 0) return ~(uint32_t)_mm_cvtsi128_si32(state);
        left = rmq_crc32_smaller(size, RMQ_CRC32_PIECE);
        sum = rmq_crc32_front(state, left);
    }
}

/* --- VPCLMULQDQ: 32 bytes at a time ------------------------------------------------------------------ */

RMQ_CRC32_256 static inline __m256i rmq_crc32_load_256(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

RMQ_CRC32_256 static inline __m256i rmq_crc32_add_256(__m256i sum, __m256i block, size_t size)
{
    const __m256i weights = rmq_crc32_load_256(rmq_crc32_weights_at(size));
    sum = _mm256_xor_si256(sum, _mm256_clmulepi64_epi128(block, weights, 0x00));
    return _mm256_xor_si256(sum, _mm256_clmulepi64_epi128(block, weights, 0x11));
}

RMQ_CRC32_256 static inline __m128i rmq_crc32_lanes_256(__m256i sum)
{
    return _mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

RMQ_CRC32_256 static uint32_t rmq_crc32_vpclmul_256(uint32_t crc, const unsigned char *data, size_t size)
{
    if (size < 16) return rmq_crc32_portable(crc, data, size);
    const size_t head = ((size - 1) & 15) + 1;
    const size_t odd = (size - head) & 16; /* one register of 16 bytes, or none */
    size -= head + odd;
    size_t left = rmq_crc32_smaller(size, RMQ_CRC32_PIECE - 32);
    __m128i front = rmq_crc32_left_over(~crc, head, left + odd);
    front = rmq_crc32_add_128(front, rmq_crc32_head_128(~crc, data, head), left + odd + 16);
    if (odd) front = rmq_crc32_add_128(front, rmq_crc32_load_128(data + head), left + 16);
    for (data += head + odd;;) {
        __m256i sum = _mm256_setzero_si256();
        for (size -= left; left > 0; left -= 32, data += 32)
            sum = rmq_crc32_add_256(sum, rmq_crc32_load_256(data), left);
        const __m128i state = rmq_crc32_divide(_mm_xor_si128(front, rmq_crc32_lanes_256(sum)));
        if (size == 0) return ~(uint32_t)_mm_cvtsi128_si32(state);
        left = rmq_crc32_smaller(size, RMQ_CRC32_PIECE);
        front = rmq_crc32_front(state, left);
    }
}

/* --- VPCLMULQDQ: 64 bytes at a time ------------------------------------------------------------------ */

RMQ_CRC32_512 static inline __m512i rmq_crc32_add_512(__m512i sum, __m512i block, size_t size)
{
    const __m512i weights = _mm512_load_si512(rmq_crc32_weights_at(size));
    const __m512i first = _mm512_clmulepi64_epi128(block, weights, 0x00);
    const __m512i second = _mm512_clmulepi64_epi128(block, weights, 0x11);
    return _mm512_ternarylogic_epi64(sum, first, second, 0x96); /* the sum of three */
}

RMQ_CRC32_512 static inline __m128i rmq_crc32_lanes_512(__m512i sum)
{
    return rmq_crc32_lanes_256(_mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1)));
}

/* The first `head` bytes (0..63) of `size`, with the state added, moved to the end of a register. A masked load
 * reads nothing outside its mask, but is slow where that is unmapped memory: hence only when it must be. */
RMQ_CRC32_512 static inline __m512i rmq_crc32_head_512(uint32_t state, const unsigned char *data, size_t head,
                                                      size_t size)
{
    const __mmask64 last = ~(UINT64_MAX >> head);
    __m512i block = size < 64 ? _mm512_maskz_loadu_epi8(((uint64_t)1 << head) - 1, data) : _mm512_loadu_si512(data);
    block = _mm512_xor_si512(block, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    return _mm512_maskz_permutexvar_epi8(last, _mm512_loadu_si512(rmq_crc32_moves + head), block);
}

RMQ_CRC32_512 static uint32_t rmq_crc32_vpclmul_512(uint32_t crc, const unsigned char *data, size_t size)
{
    if (size < 4) return rmq_crc32_portable(crc, data, size);
    const size_t head = size & 63;
    size_t left = rmq_crc32_smaller(size - head, RMQ_CRC32_PIECE - 64);
    __m128i front = rmq_crc32_left_over(~crc, head, left);
    __m512i sum = rmq_crc32_head_512(~crc, data, head, size);
    sum = rmq_crc32_add_512(_mm512_setzero_si512(), sum, left + 64);
    size -= head;
    for (data += head;;) {
        for (size -= left; left > 0; left -= 64, data += 64)
            sum = rmq_crc32_add_512(sum, _mm512_loadu_si512(data), left);
        const __m128i state = rmq_crc32_divide(_mm_xor_si128(front, rmq_crc32_lanes_512(sum)));
        if (size == 0) return ~(uint32_t)_mm_cvtsi128_si32(state);
        left = rmq_crc32_smaller(size, RMQ_CRC32_PIECE);
        front = rmq_crc32_front(state, left);
        sum = _mm512_setzero_si512();
    }
}
#endif

#ifdef RMQ_CRC32_ARM
/* --- aarch64: eight bytes by one instruction --------------------------------------------------------- */

static uint32_t rmq_crc32_arm(uint32_t crc, const unsigned char *data, size_t size)
{
    uint32_t state = ~crc;
    for (; size >= 8; data += 8, size -= 8)
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(state) : "r"(rmq_crc32_load(data)));
    for (; size > 0; data++, size--)
        __asm__(".arch_extension crc\n\tcrc32b %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)*data));
    return ~state;
}
#endif

/* --- choice ------------------------------------------------------------------------------------------ */

#define RMQ_CRC32_LEVELS 4

/* Takes the implementation of that level: 0 portable, 1 PCLMULQDQ or aarch64's instruction, 2 and 3 VPCLMULQDQ
 * on 32 and on 64 bytes. Returns 0, and changes nothing, when this processor or this build has none of it.
 * __builtin_cpu_supports asks the system too, whether it keeps the wide registers. */
static inline int rmq_crc32_choose(int level)
{
    rmq_crc32_function function = NULL;
    const char *name = "";
    if (level == 0) function = rmq_crc32_portable, name = "portable";
#ifdef RMQ_CRC32_X86
    const int pclmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    const int wide = pclmul && __builtin_cpu_supports("vpclmulqdq");
    if (level == 1 && pclmul) function = rmq_crc32_pclmul, name = "pclmul";
    if (level == 2 && wide && __builtin_cpu_supports("avx2")) function = rmq_crc32_vpclmul_256, name = "vpclmul-256";
    if (level == 3 && wide && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
        && __builtin_cpu_supports("avx512vbmi")) function = rmq_crc32_vpclmul_512, name = "vpclmul-512";
#endif
#ifdef RMQ_CRC32_ARM
    const unsigned long crc32_instructions = 1 << 7; /* HWCAP_CRC32 */
    if (level == 1 && (getauxval(AT_HWCAP) & crc32_instructions)) function = rmq_crc32_arm, name = "aarch64-crc";
#endif
    if (!function) return 0;
    rmq_crc32_chosen = function;
    rmq_crc32_chosen_name = name;
    return 1;
}

/* Builds the tables and chooses the fastest implementation. Before anything else, and by one thread. */
static inline void rmq_crc32_init(void)
{
    rmq_crc32_build_tables();
#ifdef RMQ_CRC32_X86
    __builtin_cpu_init();
    rmq_crc32_build_constants();
#endif
    for (int level = RMQ_CRC32_LEVELS - 1; !rmq_crc32_choose(level);) level--;
}

/* As zlib's crc32(): `crc` is 0 at first, or the result for the bytes before `data`. */
static inline uint32_t rmq_crc32(uint32_t crc, const unsigned char *data, size_t size)
{
    return rmq_crc32_chosen(crc, data, size);
}

static inline const char *rmq_crc32_name(void) { return rmq_crc32_chosen_name; }

#endif
