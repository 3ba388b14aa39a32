/* saves.h - a thread that reads a snapshot while a rank goes on, and looks
 * whether it is what was. */
#pragma once

#include "zero/zero.h"

struct saver;

/* `eighths`: of the room that copies of all may need. */
enum zd_status saver_create(
        struct zero *zero, const struct zero_plan *plan, size_t eighths,
        struct saver **out);
/* Collective, between steps: the one before has ended, and this one begins. */
enum zd_status saver_begin(struct saver *saver);
enum zd_status saver_end(struct saver *saver);
/* The last call: ZD_ERR_DATA where one was not what was. A rank that ended
 * sooner would leave the others waiting. */
enum zd_status saver_judge(struct saver *saver);
void saver_destroy(struct saver *saver); /* ends it; NULL is nothing */
