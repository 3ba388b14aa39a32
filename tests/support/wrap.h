/* wrap.h - a function of the program that a test stands in for
 * (-Wl,--wrap=NAME): WRAP(enum zd_status, st_digest, const char *path, ..) and
 * the body, which may call __real_NAME. */
#pragma once

#define WRAP(type, name, ...)                                                  \
    type __real_##name(__VA_ARGS__);                                           \
    type __wrap_##name(__VA_ARGS__);                                           \
    type __wrap_##name(__VA_ARGS__)
