/* machine.h - how fast a machine is, as far as a plan asks. The numbers of a
 * known machine are those of its maker's data sheet, and the share of them that
 * programs reach; machine.c says where they come from. */
#ifndef ZD_TRAIN_PLAN_MACHINE_H
#define ZD_TRAIN_PLAN_MACHINE_H

#include "base/device/device.h"
#include "base/number/dtype.h"

/* What was measured here (calibration.h), in a compute type of 16 bits and in
 * fp32; a rate of 0 was not measured. Counted as cost.c does. */
enum { RATE_TYPES = 2, RATE_TOKENS = 4, RATE_WIDTHS = 4, RATE_LENGTHS = 3 };
extern const int plan_rate_tokens[RATE_TOKENS];   /* rows of a product, .. */
extern const int plan_rate_widths[RATE_WIDTHS];   /* .. its other two sides */
extern const int plan_rate_lengths[RATE_LENGTHS]; /* of a sequence */
enum { RATE_FORWARD, RATE_BACKWARD, RATE_PASSES };
/* A matmul backward makes the gradient of its input, or of its weight. */
enum { RATE_WEIGHTS = RATE_PASSES, RATE_PRODUCTS };
struct plan_rates {
    /* FLOP/s; attention counts what causal attention needs */
    double products[RATE_PRODUCTS][RATE_TOKENS][RATE_WIDTHS];
    double attention[RATE_PASSES][RATE_LENGTHS];
    /* a layer is so many times its parts, and so many seconds more */
    double whole[RATE_PASSES], begin[RATE_PASSES];
    /* elements/s */
    double update;      /* AdamW, states in 32 bits, */
    double update_8bit; /* .. and in 8 */
    double round;       /* gradients to the compute type */
    double squares;     /* of gradients, for the norm */
};

struct plan_machine {
    const char *name, *what;         /* static, but for one measured */
    double products_16, products_32; /* FLOP/s of large matmuls, bf16 or fp16
                                        and fp32 */
    double half_tokens; /* rows at which a matmul has half of that */
    double memory;      /* bytes/s of the device's memory */
    double launch;      /* seconds that a layer takes besides its work; 0 where
                           rates are measured, which include it */
    double host;        /* bytes/s that one rank's updates on the host move */
    double link;        /* bytes/s between device and host, each way */
    double inside, between; /* bytes/s that a rank sends within its node, and to
                               others */
    double latency;         /* seconds of a step of a collective */
    double jitter; /* each doubling of the ranks makes the slowest of them, for
                      whom all wait, slower by this share */
    double disk;   /* bytes/s of a rank, each way */
    bool shares_cores; /* collectives, copies and updates on the host take their
                          time from what computes: the CPU device */
    bool is_measured;  /* here; else no one has compared it with a run */
    bool is_guess;     /* stands for any processor: plan_guess_words */
    bool wire_is_measured;
    const struct plan_rates *rates; /* (RATE_TYPES): 16 bits, fp32; NULL */
};

/* NULL: there is none of this name. */
const struct plan_machine *plan_machine_find(const char *name);
/* Digits of its times that are worth printing. */
int plan_machine_digits(const struct plan_machine *machine);
/* Printed with the times of a machine that is a guess. */
extern const char plan_guess_words[];
/* What a backend is taken for where nothing else is said: on a CPU the row of
 * this processor, or the guess. */
const struct plan_machine *plan_machine_default(enum device_backend backend);
#endif
