/* SPDX-License-Identifier: LGPL-3.0-or-later
 *
 * A number for every moment, such as that of free units: a step function of time.
 *
 * The definition is flux/resource/plan/timeline.py.  Here the steps are kept in blocks that
 * know their extremes: a search skips a whole block where these suffice, and a change of a span
 * reads the single steps of the blocks at its ends.  The heads and extremes of blocks are in arrays
 * of their own, so that a search that skips blocks reads nothing else.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "plan.h"

/* Steps of a block: smaller blocks make searches longer, larger ones changes.  Tests build this with
 * smaller ones.
 */
#ifndef STEPS_PER_BLOCK
#define STEPS_PER_BLOCK 48
#endif

struct block {
    size_t count;
    int64_t plus; /* added to all values */
    double starts[STEPS_PER_BLOCK + 1];
    int64_t values[STEPS_PER_BLOCK + 1];
};

struct entry {
    int64_t least, most; /* the extremes of the block */
    struct block *block;
};

struct timeline {
    size_t count;          /* of blocks; there is at least one, and none is empty */
    size_t room;           /* the capacity */
    double *heads;         /* when the first step of each block begins */
    struct entry *entries; /* the blocks */
};

/* The place of the step of a block that a time is in; the first, if it is before all. */
static size_t step_of (const struct block *block, double time)
{
    return step_in (block->starts, block->count, time);
}

/* Find the extremes of some steps. */
static void measure_steps (const struct block *block,
                           size_t first,
                           size_t stop,
                           int64_t *least,
                           int64_t *most)
{
    int64_t low = block->values[first];
    int64_t high = low;

    for (size_t i = first + 1; i < stop; i++) {
        int64_t value = block->values[i];
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    *least = low + block->plus;
    *most = high + block->plus;
}

/* Find the extremes of a block again, some of whose steps have changed. */
static void measure (struct timeline *line, size_t at)
{
    struct block *block = line->entries[at].block;

    measure_steps (block, 0, block->count, &line->entries[at].least, &line->entries[at].most);
}

/* Put a block before the one at a place. */
static int insert_block (struct timeline *line, size_t at, struct block *block)
{
    size_t behind = line->count - at;
    size_t room = line->room;

    if (reserve (&line->heads, &room, line->count + 1, sizeof (line->heads[0])) < 0
        || reserve (&line->entries, &line->room, line->count + 1, sizeof (line->entries[0])) < 0)
        return -1;
    memmove (&line->heads[at + 1], &line->heads[at], behind * sizeof (line->heads[0]));
    memmove (&line->entries[at + 1], &line->entries[at], behind * sizeof (line->entries[0]));
    line->heads[at] = block->starts[0];
    line->entries[at].block = block;
    line->count++;
    measure (line, at);
    return 0;
}

/* Take out some blocks from a place on. */
static void remove_blocks (struct timeline *line, size_t at, size_t count)
{
    size_t behind = line->count - at - count;

    for (size_t i = at; i < at + count; i++)
        free (line->entries[i].block);
    memmove (&line->heads[at], &line->heads[at + count], behind * sizeof (line->heads[0]));
    memmove (&line->entries[at], &line->entries[at + count], behind * sizeof (line->entries[0]));
    line->count -= count;
}

static void insert_step (struct block *block, size_t place, double start, int64_t value)
{
    size_t behind = block->count - place;

    memmove (&block->starts[place + 1], &block->starts[place], behind * sizeof (double));
    memmove (&block->values[place + 1], &block->values[place], behind * sizeof (int64_t));
    block->starts[place] = start;
    block->values[place] = value;
    block->count++;
}

static void remove_steps (struct block *block, size_t place, size_t count)
{
    size_t behind = block->count - place - count;

    memmove (&block->starts[place], &block->starts[place + count], behind * sizeof (double));
    memmove (&block->values[place], &block->values[place + count], behind * sizeof (int64_t));
    block->count -= count;
}

/* Make a step begin at a time, which is not before the first step.  Sets *at to the place of its
 * block.
 */
static int cut (struct timeline *line, double time, size_t *at)
{
    struct block *block, *other;
    size_t place, half;

    *at = step_in (line->heads, line->count, time);
    block = line->entries[*at].block;
    place = step_of (block, time);
    if (block->starts[place] == time)
        return 0;
    insert_step (block, place + 1, time, block->values[place]);
    if (block->count <= STEPS_PER_BLOCK)
        return 0;
    half = block->count / 2;
    if (!(other = malloc (sizeof (*other))))
        goto error;
    other->count = block->count - half;
    other->plus = block->plus;
    memcpy (other->starts, &block->starts[half], other->count * sizeof (double));
    memcpy (other->values, &block->values[half], other->count * sizeof (int64_t));
    if (insert_block (line, *at + 1, other) < 0)
        goto error;
    block->count = half;
    measure (line, *at);
    if (time >= other->starts[0])
        (*at)++;
    return 0;
error:
    free (other);
    remove_steps (block, place + 1, 1);
    return -1;
}

/* Drop the step that begins at a time if it has the value of the one before. */
static void join (struct timeline *line, double time)
{
    size_t at = step_in (line->heads, line->count, time);
    struct block *block = line->entries[at].block;
    size_t place = before_time (block->starts, block->count, time);
    const struct block *before;

    if (place > 0) {
        if (block->values[place - 1] == block->values[place])
            remove_steps (block, place, 1);
        return;
    }
    if (at == 0)
        return;
    before = line->entries[at - 1].block;
    if (before->values[before->count - 1] + before->plus != block->values[0] + block->plus)
        return;
    if (block->count == 1) {
        remove_blocks (line, at, 1);
        return;
    }
    remove_steps (block, 0, 1);
    line->heads[at] = block->starts[0];
    measure (line, at);
}

struct timeline *timeline_create (double start, int64_t value)
{
    struct timeline *line = calloc (1, sizeof (*line));
    struct block *block = malloc (sizeof (*block));

    if (line && block) {
        block->count = 1;
        block->plus = 0;
        block->starts[0] = start;
        block->values[0] = value;
        if (insert_block (line, 0, block) == 0)
            return line;
    }
    free (block);
    timeline_destroy (line);
    return NULL;
}

struct timeline *timeline_copy (const struct timeline *line)
{
    struct timeline *copy = calloc (1, sizeof (*copy));

    if (!copy)
        return NULL;
    copy->room = line->count;
    copy->heads = duplicate (line->heads, line->count * sizeof (line->heads[0]));
    copy->entries = duplicate (line->entries, line->count * sizeof (line->entries[0]));
    while (copy->heads && copy->entries && copy->count < line->count) {
        struct block *block = duplicate (line->entries[copy->count].block, sizeof (*block));

        if (!block)
            break;
        copy->entries[copy->count++].block = block;
    }
    if (copy->count == line->count)
        return copy;
    timeline_destroy (copy);
    return NULL;
}

void timeline_destroy (struct timeline *line)
{
    if (!line)
        return;
    for (size_t at = 0; at < line->count; at++)
        free (line->entries[at].block);
    free (line->heads);
    free (line->entries);
    free (line);
}

double timeline_begin (const struct timeline *line)
{
    return line->heads[0];
}

/* Add a number to a span that begins and ends between the steps of one block, which has room. */
static void add_within (struct block *block, double start, double end, int64_t delta)
{
    size_t first = before_time (block->starts, block->count, start);
    size_t last;

    if (block->starts[first] != start)
        insert_step (block, first, start, block->values[first - 1]);
    last = first + before_time (&block->starts[first], block->count - first, end);
    if (block->starts[last] != end)
        insert_step (block, last, end, block->values[last - 1]);
    for (size_t place = first; place < last; place++)
        block->values[place] += delta;
    if (block->values[last] == block->values[last - 1])
        remove_steps (block, last, 1);
    if (block->values[first] == block->values[first - 1])
        remove_steps (block, first, 1);
}

int timeline_add (struct timeline *line, double start, double end, int64_t delta)
{
    size_t first, last;
    struct block *block;

    start = fmax (start, line->heads[0]);
    if (!(start < end))
        return 0;
    first = step_in (line->heads, line->count, start);
    block = line->entries[first].block;
    if (start > block->starts[0] && end < block->starts[block->count - 1]
        && block->count + 2 <= STEPS_PER_BLOCK) {
        add_within (block, start, end, delta); /* as most spans are */
        measure (line, first);
        return 0;
    }
    if (cut (line, start, &first) < 0)
        return -1;
    if (isinf (end))
        last = line->count - 1;
    else if (cut (line, end, &last) < 0) {
        join (line, start);
        return -1;
    }
    for (size_t at = first; at <= last; at++) {
        size_t place, stop;

        block = line->entries[at].block;
        if (start <= line->heads[at] && (at < last || isinf (end))) {
            block->plus += delta;
            line->entries[at].least += delta;
            line->entries[at].most += delta;
            continue;
        }
        place = before_time (block->starts, block->count, start);
        stop = before_time (block->starts, block->count, end);
        if (place == stop)
            continue;
        for (; place < stop; place++)
            block->values[place] += delta;
        measure (line, at);
    }
    if (!isinf (end))
        join (line, end);
    join (line, start);
    return 0;
}

void timeline_forget (struct timeline *line, double time)
{
    size_t at = step_in (line->heads, line->count, time);
    struct block *block;
    size_t place;

    if (at > 0)
        remove_blocks (line, 0, at);
    block = line->entries[0].block;
    place = step_of (block, time);
    if (place > 0) {
        remove_steps (block, 0, place);
        line->heads[0] = block->starts[0];
        measure (line, 0);
    }
}

void timeline_extremes (const struct timeline *line,
                        double start,
                        double end,
                        int64_t *least,
                        int64_t *most)
{
    size_t at = step_in (line->heads, line->count, start);
    size_t place = step_of (line->entries[at].block, start);

    *least = INT64_MAX;
    *most = INT64_MIN;
    for (bool is_last = false; !is_last; at++, place = 0) {
        int64_t low = line->entries[at].least, high = line->entries[at].most;

        is_last = at + 1 == line->count || line->heads[at + 1] >= end;
        if (place > 0 || is_last) {
            const struct block *block = line->entries[at].block;
            size_t stop = is_last ? before_time (block->starts, block->count, end) : block->count;

            measure_steps (block, place, stop > place ? stop : place + 1, &low, &high);
        }
        *least = low < *least ? low : *least;
        *most = high > *most ? high : *most;
    }
}

int64_t timeline_least (const struct timeline *line, double start, double end)
{
    int64_t least, most;

    timeline_extremes (line, start, end, &least, &most);
    return least;
}

double timeline_since (const struct timeline *line, int64_t value, double time)
{
    size_t at = before_time (line->heads, line->count, time);
    const struct block *block;
    size_t place;

    if (at == 0)
        return -INFINITY;
    block = line->entries[--at].block;
    place = before_time (block->starts, block->count, time);
    while (true) {
        while (place > 0) {
            if (block->values[place - 1] + block->plus < value)
                return time;
            time = block->starts[--place];
        }
        while (at > 0 && line->entries[at - 1].least >= value)
            time = line->heads[--at];
        if (at == 0)
            return -INFINITY;
        block = line->entries[--at].block;
        place = block->count;
    }
}

/* Go on, from a step of a block, to the first that has less than a value (`less`), or no less, and
 * that begins before a time as far as whole blocks tell.  Returns when it begins, or infinity.
 */
static inline double go_on (const struct timeline *line,
                            size_t *at,
                            size_t *place,
                            int64_t value,
                            bool less,
                            double until)
{
    do {
        const struct entry *entry = &line->entries[*at];
        const struct block *block = entry->block;

        if (less ? entry->least < value : entry->most >= value)
            for (; *place < block->count; (*place)++)
                if ((block->values[*place] + block->plus < value) == less)
                    return block->starts[*place];
        *place = 0;
    } while (++*at < line->count && line->heads[*at] < until);
    return INFINITY;
}

double timeline_below (const struct timeline *line, int64_t value, double start)
{
    size_t at = step_in (line->heads, line->count, start);
    size_t place = step_of (line->entries[at].block, start);

    return last_of (start, go_on (line, &at, &place, value, true, INFINITY));
}

double timeline_first (const struct timeline *line,
                       int64_t value,
                       double length,
                       double start,
                       double limit,
                       double until)
{
    size_t at = step_in (line->heads, line->count, start);
    size_t place = step_of (line->entries[at].block, start);
    double since, end;

    if (start >= limit)
        return INFINITY;
    until = first_of (limit, last_of (until, nextafter (start, INFINITY)));
    for (;;) {
        since = go_on (line, &at, &place, value, false, until);
        /* The step that `start` is in counts from `start` on, not from where it begins. */
        if (since <= last_of (start, line->heads[0]))
            since = start;
        if (since >= until)
            return INFINITY;
        end = first_of (limit, since + length);
        if (go_on (line, &at, &place, value, true, end) >= end)
            return since;
    }
}
