/* screen.h - the whole terminal, taken and always given back: at the end, on a
 * signal, and when the program breaks. */
#ifndef ZD_CTL_SCREEN_H
#define ZD_CTL_SCREEN_H

#include <stdbool.h>

/* Keys without echo, line editing and signals (Ctrl-C is one), a second screen,
 * no cursor. False: stdin or stdout is no terminal that can. */
bool screen_take(void);
/* May be called twice, and from a handler of signals. */
void screen_restore(void);
/* Draw the first `rows` lines of text over the last frame. Lines are cleared
 * from their ends, so that nothing flickers. */
void screen_draw(const char *text, int rows);
/* The key that is pressed within `seconds`; 0: none, or the window changed
 * size. -1: the terminal is gone. */
int screen_key(double seconds);

#endif
