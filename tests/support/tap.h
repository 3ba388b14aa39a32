/* tap.h - what plain programs print of their tests, for one thread. */
#pragma once

#include <stdbool.h>

/* A test, numbered; when it failed, the thread's error too. */
void tap_ok(bool passed, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Something is tried again, "what: why"; deploy/test.sh counts these lines. */
void tap_again(const char *format, ...) __attribute__((format(printf, 1, 2)));
int tap_done(void); /* prints the plan; exit code */
