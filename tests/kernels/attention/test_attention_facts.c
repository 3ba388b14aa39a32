/* Every rule of attention_choose, which depends only on its arguments. */
#include "kernels/attention/attention_choice.h"

#include <criterion/criterion.h>
#include <string.h>

/* Llama-3.1-8B's head at a context of 8192. */
static struct attention_shape shape(int documents)
{
    return (struct attention_shape){
            .B = 2,
            .T = 8192,
            .H = 32,
            .KV = 8,
            .D = 128,
            .q_stride = 6144,
            .k_stride = 6144,
            .v_stride = 6144,
            .documents = documents};
}

static struct attention_facts facts(int cudnn, int major)
{
    return (struct attention_facts){
            .dtype = DTYPE_BF16,
            .has_cudnn = true,
            .cudnn = cudnn,
            .major = major};
}

/* `expected`: "ff": forward and backward by cuDNN, "fo": only forward, "oo":
 * neither. */
static void expect(
        struct attention_shape s, struct attention_facts f,
        const char *expected, const char *why)
{
    struct attention_answer answer = attention_choose(&s, &f);
    char got[] = "oo";
    for (int i = 0; i < ATTENTION_DIRECTIONS; i++) {
        if (!*answer.why[i])
            got[i] = 'f';
        cr_expect_eq(got[i] == 'f', answer.work_bytes[i] > 0);
    }
    cr_expect_str_eq(got, expected, "%s / %s", answer.why[0], answer.why[1]);
    cr_expect(strstr(answer.why[1], why), "%s", answer.why[1]);
}

Test(attention_facts, machines_and_versions)
{
    expect(shape(2), facts(91900, 9), "fo", "from 9.25 on");
    expect(shape(2), facts(92500, 9), "ff", "");
    expect(shape(2), facts(91900, 8), "ff", "");
    expect(shape(2), facts(91700, 10), "fo", "from 9.18 on");
    expect(shape(2), facts(91800, 10), "ff", "");
    expect(shape(2), facts(91800, 7), "oo", "sm_80");
    expect(shape(2), facts(0, 0), "ff", "");
    expect(shape(2), facts(91000, 8), "fo", "faulty");
}

Test(attention_facts, requested_engine_is_used)
{
    struct attention_facts f = facts(91900, 9);
    f.choice = ATTENTION_CUDNN;
    expect(shape(2), f, "ff", "");
    f.choice = ATTENTION_OWN;
    expect(shape(2), f, "oo", "model.attn");
    f = facts(92500, 9);
    f.dtype = DTYPE_FP32;
    expect(shape(2), f, "oo", "fp32");
    f = facts(92500, 9);
    f.has_cudnn = false;
    expect(shape(2), f, "oo", "not available");
}

Test(attention_facts, heads)
{
    struct attention_shape s = shape(2);
    s.D = 100;
    expect(s, facts(92500, 9), "oo", "multiple of 8");
    s.D = 256;
    expect(s, facts(92500, 9), "ff", "");
    expect(s, facts(92500, 8), "fo", "wider");
    expect(s, facts(92200, 10), "fo", "wider");
    expect(s, facts(92300, 10), "ff", "");
    s.D = 264;
    expect(s, facts(92500, 9), "oo", "wider");
}

Test(attention_facts, windows_and_caps)
{
    struct attention_shape s = shape(2);
    s.window = 1024;
    expect(s, facts(92500, 9), "ff", "");
    expect(s, facts(90500, 8), "oo", "9.6");
    expect(s, facts(0, 0), "ff", "");
    s.softcap = 50;
    expect(s, facts(92500, 9), "oo", "soft cap");
    s.window = 0;
    expect(s, facts(92500, 9), "oo", "soft cap");
}

Test(attention_facts, packed_documents)
{
    struct attention_shape s = shape(20);
    expect(s, facts(92500, 9), "ff", "");
    expect(s, facts(90500, 9), "oo", "9.6");
    expect(s, facts(92400, 10), "oo", "9.25");
    expect(shape(32), facts(92400, 10), "ff", "");
    expect(shape(32), facts(91700, 10), "fo", "9.18");
    expect(s, facts(0, 9), "ff", "");
    expect(s, facts(92500, 8), "fo", "sm_8x");
    expect(s, facts(92500, 12), "fo", "sm_8x");
    expect(shape(0), facts(92500, 9), "oo", "is unknown");
    expect(shape(1025), facts(92500, 9), "oo", "fewer than 16");
    expect(shape(1024), facts(92500, 9), "ff", "");
    s.D = 72;
    expect(s, facts(92500, 9), "fo", "multiple of 16");
    s = shape(100);
    s.B = 43; /* 43 * 8192 * 6144 is beyond 2^31 */
    expect(s, facts(92500, 9), "oo", "too large");
    s.B = 42;
    expect(s, facts(92500, 9), "ff", "");
}

Test(attention_facts, buckets_are_powers_of_two)
{
    for (int documents = 2; documents <= 1024; documents++) {
        struct attention_shape s = shape(documents);
        int bucket = attention_bucket(&s);
        cr_assert_geq(bucket, documents);
        cr_assert_lt(bucket, 2 * documents);
        cr_assert_eq(bucket & (bucket - 1), 0);
    }
}

/* No answer exceeds the bound, for any number of documents. */
static void expect_bound(struct attention_facts f, int T)
{
    struct attention_shape s = shape(0);
    s.T = T;
    size_t most = 0, bound = attention_work_bound(&s, &f);
    for (s.documents = s.B; s.documents <= 1024; s.documents++) {
        struct attention_answer answer = attention_choose(&s, &f);
        for (int i = 0; i < ATTENTION_DIRECTIONS; i++)
            if (answer.work_bytes[i] > most)
                most = answer.work_bytes[i];
    }
    cr_expect_eq(most, bound);
}

Test(attention_facts, bound_holds_for_every_count)
{
    struct attention_facts f = facts(92500, 9), older = facts(91900, 9);
    struct attention_shape s = shape(0);
    expect_bound(f, 8192);
    expect_bound(facts(92400, 10), 8192);
    expect_bound(facts(92400, 10), 8000);
    cr_expect_lt(
            attention_work_bound(&s, &older), attention_work_bound(&s, &f) / 4,
            "our own backward needs no work space of cuDNN");
}
