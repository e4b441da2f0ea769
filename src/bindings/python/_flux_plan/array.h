/* SPDX-License-Identifier: LGPL-3.0-or-later */
#ifndef ARRAY_H
#define ARRAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Have room for so many elements in an array; -1: no memory, and it is as before.
 *
 * array: address of the pointer to its elements
 * room: for how many there is room, which is at least doubled
 * each: size of an element
 */
static inline int reserve (void *array, size_t *room, size_t wanted, size_t each)
{
    size_t more = *room ? *room : 4;
    void *elements;

    if (wanted <= *room)
        return 0;
    while (more < wanted) {
        if (more > SIZE_MAX / 2 / each)
            return -1;
        more *= 2;
    }
    memcpy (&elements, array, sizeof (elements));
    if (!(elements = realloc (elements, more * each)))
        return -1;
    memcpy (array, &elements, sizeof (elements));
    *room = more;
    return 0;
}

/* A copy of some memory, which may be none; NULL: no memory. */
static inline void *duplicate (const void *from, size_t size)
{
    void *to = malloc (size + 1);

    if (to && size)
        memcpy (to, from, size);
    return to;
}

/* fmin() and fmax(), of numbers: these are library calls, which also handle NaN. */
static inline double first_of (double a, double b)
{
    return a < b ? a : b;
}

static inline double last_of (double a, double b)
{
    return a > b ? a : b;
}

/* The number of some ascending times that are earlier than a time, or not later.  Without branches, which
 * would often be mispredicted; inline: a comparison that is chosen by an argument costs a fifth of all
 * moves.
 */
static inline size_t count_times (const double *times, size_t count, double time, bool or_equal)
{
    size_t first = 0;

    while (count > 0) {
        size_t half = (count + 1) / 2;
        double middle = times[first + half - 1];

        first += (or_equal ? middle <= time : middle < time) ? half : 0;
        count -= half;
    }
    return first;
}

/* The place of the step that a time is in, of steps that begin at some times; the first, if it is before all. */
static inline size_t step_in (const double *times, size_t count, double time)
{
    size_t after = count_times (times, count, time, true);

    return after ? after - 1 : 0;
}

static inline size_t before_time (const double *times, size_t count, double time)
{
    return count_times (times, count, time, false);
}

#endif
