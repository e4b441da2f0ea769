/* SPDX-License-Identifier: LGPL-3.0-or-later */
#ifndef ARRAY_H
#define ARRAY_H

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

#endif
