/* startup.h - how long each phase from the process's start to its first step
 * took, for a line of the log. Internal to train. */
#ifndef ZD_TRAIN_REPORT_STARTUP_H
#define ZD_TRAIN_REPORT_STARTUP_H

enum { STARTUP_PHASES = 12 };

struct startup {
    double last; /* clock of the last mark */
    int count;   /* of phases; 0: not begun, or logged */
    struct startup_phase {
        const char *name;
        double seconds;
    } phases[STARTUP_PHASES];
};

/* Its first phase is "launch": from the process's start until now. */
void startup_begin(struct startup *startup);
/* The time since the last mark was spent on `name`, which is static. */
void startup_mark(struct startup *startup, const char *name);
/* All phases, on the log (level info). */
void startup_tell(const struct startup *startup);
/* Seconds since this process was executed, by /proc, to a hundredth; 0 where
 * that cannot be read. */
double process_seconds(void);

#endif
