#include "base/suggest.h"

#include <ctype.h>
#include <string.h>

enum { WORD_MAX = 63, FAR = 1000 };

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Optimal string alignment: three rows of the usual table. */
int edit_distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    size_t m = strlen(a), n = strlen(b);
    if (m > WORD_MAX || n > WORD_MAX)
        return FAR;
    for (size_t j = 0; j <= n; j++)
        last[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int x = tolower((unsigned char)a[i - 1]);
            int y = tolower((unsigned char)b[j - 1]);
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        int *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[n];
}

int suggest_is_near(const char *typed, int distance)
{
    int length = (int)strlen(typed);
    return distance <= (length < 5 ? 1 : length < 9 ? 2 : length / 3);
}

void suggest_offer(
        struct suggestion *nearest, const char *typed, int distance,
        const char *word)
{
    if (suggest_is_near(typed, distance) &&
        (!nearest->word || distance < nearest->distance))
        *nearest = (struct suggestion){word, distance};
}
