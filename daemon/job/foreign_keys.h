/* foreign_keys.h - what keys of other trainers are called here. */
#ifndef ZD_DAEMON_JOB_FOREIGN_KEYS_H
#define ZD_DAEMON_JOB_FOREIGN_KEYS_H

struct foreign_key {
    const char *name;    /* as others write it, in any section */
    const char *section; /* where it belongs here; NULL: in no job file */
    const char *here;    /* a key, a key with its value, or a sentence */
    const char *only_in; /* a section, where the word means something else in
                            others; NULL: any */
};

/* Of a key, or of a section, that nobody here knows; NULL: nor do we. */
const struct foreign_key *foreign_key_find(
        const char *in_section, const char *name);
const char *foreign_section_find(const char *name);

#endif
