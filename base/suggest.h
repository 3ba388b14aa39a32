/* suggest.h - "did you mean": the nearest known word by edits. */
#pragma once

/* Insertions, deletions, substitutions and swaps of neighbors (case ignored)
 * that lead from a to b; words above 63 letters count as far away. */
int edit_distance(const char *a, const char *b);

/* Is a word at this distance from `typed` worth naming? */
int suggest_is_near(const char *typed, int distance);

/* The nearest of the words offered so far; of equally near ones the first.
 * Starts all-zero. */
struct suggestion {
    const char *word; /* as it was offered; NULL: none is near */
    int distance;
};
void suggest_offer(
        struct suggestion *nearest, const char *typed, int distance,
        const char *word);
