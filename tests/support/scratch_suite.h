/* scratch_suite.h - a folder for each test of a suite of Criterion:
 * TestSuite(NAME, IN_SCRATCH). */
#pragma once

#include "tests/support/must.h"
#include "tests/support/scratch.h"

static struct scratch scratch;

static void scratch_setup(void)
{
    scratch_init(&scratch);
}

static void scratch_teardown(void)
{
    scratch_fini(&scratch);
}

#define IN_SCRATCH .init = scratch_setup, .fini = scratch_teardown
