/* emulate_mma.h - kernels/cuda/mma.cuh for the CPU; the contract is there.
 *
 * What a GPU would do late is done late: the target of a copy is NaN until its
 * group is waited for, so a wait that is missing shows in the results. */
#pragma once

template <typename E> inline float zd_emulate_half(uint32_t word, int upper)
{
    E x;
    x.bits = (uint16_t)(upper ? word >> 16 : word);
    return to_float(x);
}

/* What a lane has of both factors: a word is two elements. */
struct zd_emulate_fragments {
    float a[4][2], b[2][2];
};

/* Products of two elements of 16 bits are exact in fp32; sums are taken in
 * double, which is no worse than any order a GPU may take. */
template <typename E>
inline void mma_16x8x16(
        E, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    zd_emulate_fragments mine;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 4; i++)
            mine.a[i][half] = zd_emulate_half<E>(a[i], half);
        mine.b[0][half] = zd_emulate_half<E>(b0, half);
        mine.b[1][half] = zd_emulate_half<E>(b1, half);
    }
    auto lanes =
            zd_emulate_exchange(0xffffffffu, mine, "mma", __FILE__, __LINE__);
    int g = zd_emulate_lane() / 4, t = zd_emulate_lane() % 4;
    double sum[4] = {c[0], c[1], c[2], c[3]};
    for (int k = 0; k < 16; k++) {
        const zd_emulate_fragments &rows = lanes[g * 4 + k % 8 / 2];
        float x[2] = {
                rows.a[2 * (k / 8)][k % 2], rows.a[1 + 2 * (k / 8)][k % 2]};
        float y[2] = {
                lanes[2 * t * 4 + k % 8 / 2].b[k / 8][k % 2],
                lanes[(2 * t + 1) * 4 + k % 8 / 2].b[k / 8][k % 2]};
        for (int i = 0; i < 4; i++)
            sum[i] += (double)(x[i / 2] * y[i % 2]);
    }
    for (int i = 0; i < 4; i++)
        c[i] = (float)sum[i];
}

inline void zd_emulate_ldmatrix(
        uint32_t (&x)[4], const void *row, bool transposed)
{
    if ((uintptr_t)row % 16)
        zd_emulate_fail(
                __FILE__, __LINE__,
                "ldmatrix of a row at %p, which is not "
                "aligned to 16 bytes",
                row);
    auto rows = zd_emulate_exchange(
            0xffffffffu, (const uint16_t *)row, "ldmatrix", __FILE__, __LINE__);
    int g = zd_emulate_lane() / 4, t = zd_emulate_lane() % 4;
    for (int i = 0; i < 4; i++) {
        /* a matrix is read in one go where its rows lie in different banks */
        unsigned banks = 0;
        for (int r = 0; r < 8; r++)
            banks |= 1u << ((uintptr_t)rows[8 * i + r] / 16 % 8);
        if (banks != 0xff)
            zd_emulate_fail(
                    __FILE__, __LINE__,
                    "ldmatrix of rows that share banks of shared memory");
    }
    for (int i = 0; i < 4; i++) {
        uint16_t low =
                transposed ? rows[8 * i + 2 * t][g] : rows[8 * i + g][2 * t];
        uint16_t high = transposed ? rows[8 * i + 2 * t + 1][g]
                                   : rows[8 * i + g][2 * t + 1];
        x[i] = low | (uint32_t)high << 16;
    }
    /* A lane may write these rows next: all have read. It is no order of memory
     * that others may count on. */
    zd_emulate_warp_exchange(
            ALL_LANES, NULL, 0, "ldmatrix", __FILE__, __LINE__);
}

inline void ldmatrix_x4(uint32_t (&x)[4], const void *row)
{
    zd_emulate_ldmatrix(x, row, false);
}

inline void ldmatrix_x4_trans(uint32_t (&x)[4], const void *row)
{
    zd_emulate_ldmatrix(x, row, true);
}

/* Copies of a thread that were not waited for, and the groups they are in. A
 * block's threads are fibres of one thread of the host. */
#ifdef ZD_EMULATE_RACES
extern "C" void zd_race_write(const void *address, size_t bytes);
#else
inline void zd_race_write(const void *, size_t)
{
}
#endif

struct zd_emulate_copies {
    enum { MOST = 512 };
    struct {
        void *to;
        unsigned char bytes[16];
        int count, group;
    } at[MOST];
    int used, group; /* the group that is open */
};

/* Where it is belongs to no thread of the block. */
__attribute__((no_sanitize("thread"))) inline zd_emulate_copies &
zd_emulate_copies_of_thread(void)
{
    static thread_local zd_emulate_copies *all;
    if (!all)
        all = (zd_emulate_copies *)calloc(1024, sizeof *all);
    return all[zd_emulate_flat_thread];
}

inline void zd_emulate_copy(
        void *to, const void *from, int count, bool is_there)
{
    if ((uintptr_t)to % count || (uintptr_t)from % count)
        zd_emulate_fail(
                __FILE__, __LINE__,
                "cp.async of %d bytes from %p to %p, which "
                "are not aligned",
                count, from, to);
    zd_emulate_copies &copies = zd_emulate_copies_of_thread();
    if (copies.used == zd_emulate_copies::MOST)
        zd_emulate_fail(__FILE__, __LINE__, "copies that nobody waits for");
    auto &copy = copies.at[copies.used++];
    copy.to = to, copy.count = count, copy.group = copies.group;
    memset(copy.bytes, 0, sizeof copy.bytes);
    if (is_there)
        memcpy(copy.bytes, from, (size_t)count);
    memset(to, 0xff, (size_t)count);
    zd_race_write(to, (size_t)count);
}

inline void copy_async_16(void *to, const void *from, bool is_there)
{
    zd_emulate_copy(to, from, 16, is_there);
}

inline void copy_async_4(void *to, const void *from, bool is_there)
{
    zd_emulate_copy(to, from, 4, is_there);
}

inline void copy_async_commit(void)
{
    zd_emulate_copies_of_thread().group++;
}

template <int left> inline void copy_async_wait(void)
{
    zd_emulate_copies &copies = zd_emulate_copies_of_thread();
    int kept = 0;
    for (int i = 0; i < copies.used; i++) {
        auto &copy = copies.at[i];
        if (copy.group < copies.group - left) {
            memcpy(copy.to, copy.bytes, (size_t)copy.count);
            zd_race_write(copy.to, (size_t)copy.count);
        } else {
            copies.at[kept++] = copy;
        }
    }
    copies.used = kept;
}

inline float fast_exp2(float x)
{
    return exp2f(x);
}
