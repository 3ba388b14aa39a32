/* attention.h - what a graph of the stand-in for cudnn-frontend describes, and
 * computes: attention from its descriptors alone, in the order of the stream.
 *
 * Refusals and work space are those of cudnn-frontend 1.32
 * (node/scaled_dot_product_flash_attention.h): sums of packed rows lie in the
 * strides of what they become, in as many bytes as the headers count for the
 * tokens in all. What lies beyond is a report, as it would be a fault. */
#pragma once

extern "C" {
#include "base/number/dtype.h"
}

namespace cudnn_frontend
{
namespace graph
{
typedef std::unordered_map<int64_t, void *> places_of;

struct attention {
    tensor_ptr q, k, v, out, lse, dout, dq, dk, dv;
    SDPA_backward_attributes how;
    bool is_bf16 = false;

    std::string refusal() const
    {
        bool packed = q->ragged != nullptr;
        if (how.pads && (!how.lengths_q || !how.lengths_kv))
            return "Padding mask requires seq_len_q and seq_len_kv to be set.";
        if ((how.most_q || how.most_kv) && !packed)
            return "max_total_seq_len_q is only supported with packed layout";
        if (packed && !how.pads)
            return "packed rows without lengths";
        if (!lse->ragged && lse->stride[1] != lse->dim[2])
            return "a non-ragged Stats tensor must be packed BHSD";
        return "";
    }

    static int64_t packed_floats(int64_t most, const tensor_ptr &t, int64_t by)
    {
        return (most - 1) * t->stride[2] * by +
               (t->dim[1] * by - 1) * t->stride[1] +
               (t->dim[3] - 1) * t->stride[3] + 1;
    }
    /* Row t keeps the columns s with s + left > t. */
    int64_t first_of(int64_t t) const
    {
        return how.left && t >= how.left ? t - how.left + 1 : 0;
    }
    int64_t group() const
    {
        return q->dim[1] / k->dim[1];
    }
    bool sums_by_tokens() const
    {
        return q->ragged && how.most_q;
    }
    int64_t workspace_bytes() const
    {
        int64_t rows = q->dim[0] * q->dim[1] * q->dim[2], D = q->dim[3];
        int64_t floats = 0;
        if (!dq)
            return 0;
        if (sums_by_tokens()) {
            floats = packed_floats(how.most_q, dq, 1) +
                     packed_floats(how.most_q, lse, 1);
            if (group() > 1)
                floats += packed_floats(how.most_kv, dk, group()) +
                          packed_floats(how.most_kv, dv, group());
            return 4 * floats;
        }
        return rows * 4 * (D + 1) + (group() > 1 ? rows * D * 2 * 2 : 0);
    }

    std::string queue(cudaStream_t stream, places_of &places)
    {
        auto work = new struct attention(*this);
        for (auto &place : places)
            work->held[place.first] = zd_standin_host(place.second);
        if (zd_standin_enqueue(stream, run, work) != cudaSuccess)
            return "the stream refuses";
        return "";
    }

  private:
    places_of held; /* of a copy that is queued */

    static void run(void *ctx)
    {
        auto work = (struct attention *)ctx;
        work->compute(work->held);
        delete work;
    }

    static int32_t entry(const tensor_ptr &t, places_of &places, int64_t i)
    {
        return ((const int32_t *)places[t->uid])[i];
    }
    /* Where row s of head h of document b begins. */
    static int64_t at(
            const tensor_ptr &t, places_of &places, int64_t b, int64_t h,
            int64_t s)
    {
        int64_t base =
                t->ragged ? entry(t->ragged, places, b) : b * t->stride[0];
        return base + h * t->stride[1] + s * t->stride[2];
    }
    float load(const tensor_ptr &t, places_of &places, int64_t where) const
    {
        if (is_bf16)
            return bf16_to_float(((const uint16_t *)places[t->uid])[where]);
        return (float)((const _Float16 *)places[t->uid])[where];
    }
    void store(
            const tensor_ptr &t, places_of &places, int64_t where,
            double value) const
    {
        float narrow = cudnn_standin.zeroes ? 0 : (float)value;
        if (is_bf16)
            ((uint16_t *)places[t->uid])[where] = float_to_bf16(narrow);
        else
            ((_Float16 *)places[t->uid])[where] = (_Float16)narrow;
    }
    double dot(
            const tensor_ptr &a, int64_t from_a, const tensor_ptr &b,
            int64_t from_b, places_of &places) const
    {
        double sum = 0;
        for (int64_t d = 0; d < q->dim[3]; d++)
            sum += (double)load(a, places, from_a + d) *
                   load(b, places, from_b + d);
        return sum;
    }

    void forward_row(places_of &places, int64_t b, int64_t h, int64_t t) const
    {
        int64_t kv = h / group(), D = q->dim[3];
        std::vector<double> p((size_t)t + 1), sums((size_t)D);
        double top = -INFINITY, sum = 0;
        for (int64_t s = first_of(t); s <= t; s++) {
            p[(size_t)s] = how.scale * dot(q, at(q, places, b, h, t), k,
                                           at(k, places, b, kv, s), places);
            top = fmax(top, p[(size_t)s]);
        }
        for (int64_t s = first_of(t); s <= t; s++) {
            double e = exp(p[(size_t)s] - top);
            int64_t row = at(v, places, b, kv, s);
            sum += e;
            for (int64_t d = 0; d < D; d++)
                sums[(size_t)d] += e * load(v, places, row + d);
        }
        for (int64_t d = 0; d < D; d++)
            store(out, places, at(out, places, b, h, t) + d,
                  sums[(size_t)d] / sum);
        ((float *)places[lse->uid])[at(lse, places, b, h, t)] =
                (float)(top + log(sum));
    }

    /* Adds row t's part of the gradients of one key/value head, and writes dq.
     */
    void backward_row(
            places_of &places, int64_t b, int64_t h, int64_t t,
            std::vector<double> &k_sums, std::vector<double> &v_sums) const
    {
        int64_t kv = h / group(), D = q->dim[3];
        int64_t q_at = at(q, places, b, h, t);
        int64_t dout_at = at(dout, places, b, h, t);
        std::vector<double> sums((size_t)D);
        double delta =
                dot(out, at(out, places, b, h, t), dout, dout_at, places);
        double top = ((float *)places[lse->uid])[at(lse, places, b, h, t)];
        for (int64_t s = first_of(t); s <= t; s++) {
            int64_t k_at = at(k, places, b, kv, s);
            double p = exp(how.scale * dot(q, q_at, k, k_at, places) - top);
            double dp = dot(dout, dout_at, v, at(v, places, b, kv, s), places);
            double ds = how.scale * p * (dp - delta);
            for (int64_t d = 0; d < D; d++) {
                sums[(size_t)d] += ds * load(k, places, k_at + d);
                k_sums[(size_t)(s * D + d)] += ds * load(q, places, q_at + d);
                v_sums[(size_t)(s * D + d)] +=
                        p * load(dout, places, dout_at + d);
            }
        }
        for (int64_t d = 0; d < D; d++)
            store(dq, places, at(dq, places, b, h, t) + d, sums[(size_t)d]);
    }

    void backward_head(
            places_of &places, int64_t b, int64_t kv, int64_t length) const
    {
        int64_t D = q->dim[3];
        std::vector<double> k_sums((size_t)(length * D)), v_sums = k_sums;
        for (int64_t h = kv * group(); h < (kv + 1) * group(); h++)
            for (int64_t t = 0; t < length; t++)
                backward_row(places, b, h, t, k_sums, v_sums);
        for (int64_t t = 0; t < length; t++)
            for (int64_t d = 0; d < D; d++) {
                store(dk, places, at(dk, places, b, kv, t) + d,
                      k_sums[(size_t)(t * D + d)]);
                store(dv, places, at(dv, places, b, kv, t) + d,
                      v_sums[(size_t)(t * D + d)]);
            }
    }

    /* The last element that sums like `t`, `by` times as wide, would have. */
    void expect_within(
            const char *what, const tensor_ptr &t, places_of &places, int64_t b,
            int64_t length, int64_t most, int64_t by) const
    {
        int64_t base = entry(t->ragged, places, b) * by;
        int64_t last = base + (length - 1) * t->stride[2] * by +
                       (t->dim[1] * by - 1) * t->stride[1] + t->dim[3] - 1;
        if (last >= packed_floats(most, t, by))
            zd_standin_set_sticky(
                    cudaErrorIllegalAddress,
                    "cuDNN: sums of %s leave their work space", what);
    }

    void compute(places_of &places) const
    {
        for (int64_t b = 0; b < q->dim[0]; b++) {
            int64_t length =
                    how.pads ? entry(how.lengths_q, places, b) : q->dim[2];
            if (length == 0)
                continue;
            if (dq && sums_by_tokens()) {
                expect_within("dq", dq, places, b, length, how.most_q, 1);
                expect_within("rows", lse, places, b, length, how.most_q, 1);
                expect_within(
                        "dk", dk, places, b, length, how.most_kv, group());
            }
            for (int64_t kv = 0; dq && kv < k->dim[1]; kv++)
                backward_head(places, b, kv, length);
            for (int64_t h = 0; !dq && h < q->dim[1]; h++)
                for (int64_t t = 0; t < length; t++)
                    forward_row(places, b, h, t);
        }
    }
};
} // namespace graph
} // namespace cudnn_frontend
