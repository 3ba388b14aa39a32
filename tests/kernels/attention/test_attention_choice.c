/* test_attention_choice.c - attention of a GPU's table if cuDNN cannot be
 * loaded: an error if cuDNN was requested, else a log line. */
#include "tests/support/must.h"

#include "base/log.h"
#include "kernels/attention/attention_cuda.h"

#include "zd_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char said[1024];

static void keep(void *ctx, enum zd_log_level level, const char *message)
{
    if (level == ZD_LOG_INFO)
        snprintf(
                said + strlen(said), sizeof said - strlen(said), "%s\n",
                message);
}

/* The dynamic linker's error for a missing file, or that this was built without
 * the headers. */
static const char *reason(void)
{
    return ZD_HAVE_CUDNN ? "/nowhere/libcudnn.so.9"
                         : "built without cudnn-frontend";
}

static void begin(void)
{
    setenv("ZEROD_CUDNN", "/nowhere/libcudnn.so.9", 1);
    zd_log_set_hook(keep, NULL);
}

/* Checks that our own kernels are used. */
static enum zd_status choose(
        enum dtype dtype, enum attention_choice choice, const char **name_out)
{
    attention_fn *by_library;
    kernels_set_attention(choice);
    enum zd_status status = attention_cuda_choose(dtype, &by_library, name_out);
    cr_expect_null(by_library);
    return status;
}

TestSuite(attention_choice, .init = begin);

Test(attention_choice, missing_requested_cudnn_is_an_error)
{
    const char *name;
    REFUSED(choose(DTYPE_FP32, ATTENTION_CUDNN, &name), ZD_ERR_UNFIT, "E1224",
            "");
    REFUSED(choose(DTYPE_BF16, ATTENTION_CUDNN, &name), ZD_ERR_UNFIT, "E1224",
            reason());
    cr_expect_str_empty(said);
}

Test(attention_choice, auto_uses_own_kernels_and_says_why_once)
{
    const char *name;
    MUST(choose(DTYPE_BF16, ATTENTION_AUTO, &name));
    cr_expect_str_eq(name, "own attention");
    cr_expect_eq(
            strncmp(said, "attention: using our own kernels; cuDNN: ", 41), 0,
            "%s", said);
    cr_expect(strstr(said, reason()) != NULL, "%s", said);
    size_t length = strlen(said);
    MUST(choose(DTYPE_FP16, ATTENTION_AUTO, &name));
    cr_expect_eq(strlen(said), length, "%s", said);
}

Test(attention_choice, own_kernels_for_fp32_are_silent)
{
    const char *name;
    MUST(choose(DTYPE_FP32, ATTENTION_AUTO, &name));
    MUST(choose(DTYPE_BF16, ATTENTION_OWN, &name));
    cr_expect_str_empty(said);
}
