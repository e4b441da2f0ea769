/* SPDX-License-Identifier: LGPL-3.0-or-later
 *
 * Promises that are counted in timelines, and move to earlier times when units come free.
 *
 * A *run* is a span in which a number of units is free throughout.  A promise moves to an earlier
 * time if a run begins before its start and lasts for its length, or up to its start, from where on
 * it has units of its own.  A promise that was examined stays where it is until units come free.
 * Such an *opening* can only make runs that overlap it.  So each promise is examined for the
 * openings since its last examination, and only the timeline around those that may be enough for it
 * is searched.  Invariant: a promise that is not examined cannot move.  The definition, which
 * searches for each, is flux/resource/plan/timeline.py.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "plan.h"

/* Tests build this with smaller limits. */

/* More than the error of a sum of two times, in seconds. */
#define ROUNDING 1e-3
/* Classes of promises by number of units: each has twice as many as the one before. */
#define SIZES 63
/* Openings that are skipped with one check. */
#ifndef OPENINGS_TOGETHER
#define OPENINGS_TOGETHER 8
#endif
/* Openings of a size that are kept.  With more, all are dropped: a promise not examined for these is
 * searched for from now on.
 */
#ifndef MAX_KEPT
#define MAX_KEPT 16384
#endif
/* The distance of the prefetch in a row of promises, which are scattered in memory. */
#define LOOK_AHEAD 8
/* A span in which units came free, and bounds of the runs that may overlap it. */
struct opening {
    double start, end;    /* such runs neither begin nor end beyond these */
    double last;          /* they begin before this, where the span ends */
    int64_t before, most; /* their units: more than were free before, and this many at most */
    /* A search for these units and this length found none; so does one for no less. */
    int64_t vain_units;
    double vain_length;
    /* In the first of OPENINGS_TOGETHER: none begins earlier, none is longer. */
    double all_start, all_length;
};

/* Promises of at least a power of two of units, and of less than twice as many. */
struct size {
    size_t members;
    double latest;   /* none of them starts later */
    double shortest; /* none of them is shorter */
    /* Openings that may be enough for one of them, in the order in which they came. */
    struct opening *openings;
    size_t count, room;
    uint64_t first; /* one more than the number that came before these: see `seen` */
};

/* A timeline with promises. */
struct promised_line {
    struct promised_line *next;
    struct timeline *timeline;
    int64_t kept;
    bool overdrawn;
    double since;    /* when a promise was examined last */
    struct size sizes[SIZES];
};

struct promise {
    bool there;
    struct promised_line *line;
    int64_t jobid;
    int64_t count;
    double start, end;
    double length; /* after a move: the difference of two times is rounded, this is not */
    double *span;  /* the caller's: its start and end */
    uint64_t seen; /* it was examined for the openings of its size before this one; 0: for none */
};

struct promises {
    struct promised_line *lines; /* the first of them */
    /* By job id, a hash table with linear probing: its room is a power of two and at most half of it
     * is used.
     */
    struct promise *table;
    size_t count, room;
    int bits; /* of the room */
};

/* -- the table ------------------------------------------------------------ */

static size_t home_of (const struct promises *promises, int64_t jobid)
{
    return ((uint64_t)jobid * UINT64_C (0x9e3779b97f4a7c15)) >> (64 - promises->bits);
}

/* The place of a job's promise, or the free place where it would be. */
static size_t place_of (const struct promises *promises, int64_t jobid)
{
    size_t place = home_of (promises, jobid);

    while (promises->table[place].there && promises->table[place].jobid != jobid)
        place = (place + 1) & (promises->room - 1);
    return place;
}

static struct promise *find (const struct promises *promises, int64_t jobid)
{
    struct promise *promise = &promises->table[place_of (promises, jobid)];

    return promise->there ? promise : NULL;
}

static int grow_table (struct promises *promises, int bits)
{
    struct promise *old = promises->table;
    size_t old_room = promises->room;
    struct promise *table = calloc ((size_t)1 << bits, sizeof (*table));

    if (!table)
        return -1;
    promises->table = table;
    promises->bits = bits;
    promises->room = (size_t)1 << bits;
    for (size_t i = 0; i < old_room; i++) {
        if (old[i].there)
            table[place_of (promises, old[i].jobid)] = old[i];
    }
    free (old);
    return 0;
}

static void take_out (struct promises *promises, size_t place)
{
    struct promise *table = promises->table;
    size_t mask = promises->room - 1;
    size_t next = place;

    /* Those behind it that would not be found past a free place move up. */
    while (table[next = (next + 1) & mask].there) {
        size_t home = home_of (promises, table[next].jobid);

        if (((next - home) & mask) >= ((next - place) & mask)) {
            table[place] = table[next];
            place = next;
        }
    }
    table[place].there = false;
    promises->count--;
}

/* -- openings ------------------------------------------------------------- */

static struct size *size_of (struct promised_line *line, int64_t count)
{
    return &line->sizes[count > 1 ? 63 - __builtin_clzll ((uint64_t)count) : 0];
}

static uint64_t openings_so_far (const struct size *size)
{
    return size->first + size->count;
}

/* Drop the openings of a size. */
static void drop_openings (struct size *size)
{
    size->first += size->count;
    size->count = 0;
}

/* Forget all results for the promises in a timeline. */
static void forget (struct promised_line *line)
{
    for (int i = 0; i < SIZES; i++) {
        drop_openings (&line->sizes[i]);
        line->sizes[i].first++; /* those examined for all of them have to be searched for, too */
    }
}

/* Enter an opening for the sizes of promises that it may be enough for: a span in which `before`
 * units were free throughout, and `most` are now at some moment.
 */
static int consider (struct promised_line *line, double low, double high, int64_t before, int64_t most)
{
    struct opening opening = {
        .start = timeline_begin (line->timeline),
        .end = INFINITY,
        .last = high,
        .before = before,
        .most = most,
        .vain_units = INT64_MAX,
        .all_start = INFINITY,
    };
    struct opening *first;

    if (most <= before)
        return 0; /* in use again */
    for (int i = 0; i < SIZES && INT64_C (1) << i <= most; i++) {
        struct size *size = &line->sizes[i];
        int64_t least = INT64_C (1) << i;

        /* A run overlaps the opening, so that it ends after the opening's start. */
        if (!size->members || 2 * least - 1 <= before || size->latest <= low)
            continue;
        if (least <= before)
            least = before + 1;
        /* A larger number of units is free only within the span in which a smaller one is. */
        opening.start = last_of (opening.start, timeline_since (line->timeline, least, low));
        opening.end = timeline_below (line->timeline, least, high);
        if (size->shortest > opening.end - opening.start
            || opening.start + size->shortest > size->latest + ROUNDING)
            continue;
        if (size->count == MAX_KEPT)
            drop_openings (size);
        if (reserve (&size->openings, &size->room, size->count + 1, sizeof (opening)) < 0)
            return -1;
        first = &size->openings[size->count - size->count % OPENINGS_TOGETHER];
        size->openings[size->count++] = opening;
        first->all_start = first_of (first->all_start, opening.start);
        first->all_length = last_of (first->all_length, opening.end - opening.start);
    }
    return 0;
}

/* -- moving --------------------------------------------------------------- */

/* The first time from now on to which a promise could move; infinity if it stays. */
static double earlier (const struct promise *promise, double now)
{
    struct promised_line *line = promise->line;
    const struct size *size = size_of (line, promise->count);
    int64_t wanted = promise->count + line->kept;
    double before = promise->start;
    double length = promise->end - before;
    double latest = before + ROUNDING; /* the end of a run that is over before the promise begins */
    double found;

    if (promise->seen < size->first)
        return timeline_first (line->timeline, wanted, length, now, before, INFINITY);
    found = timeline_since (line->timeline, wanted, before);
    found = found >= before ? INFINITY : last_of (now, found);
    for (size_t at = promise->seen - size->first, stop; at < size->count; at = stop) {
        struct opening *one = &size->openings[at - at % OPENINGS_TOGETHER];

        stop = at - at % OPENINGS_TOGETHER + OPENINGS_TOGETHER;
        stop = stop < size->count ? stop : size->count;
        if (one->all_length < length || one->all_start + length > latest)
            continue;
        for (one = &size->openings[at]; one < &size->openings[stop]; one++) {
            double start = last_of (one->start, now);

            /* Without branches: most do not suffice, each for another reason. */
            if ((one->before < promise->count) & (promise->count <= one->most) & (start < found)
                & (start + length <= latest) & (one->end - start >= length)
                && (wanted < one->vain_units || length < one->vain_length)) {
                double first
                    = timeline_first (line->timeline, wanted, length, start, before, one->last);

                found = first_of (found, first);
                if (first == INFINITY && before >= one->last && wanted <= one->vain_units) {
                    one->vain_units = wanted;
                    one->vain_length = length;
                }
            }
        }
    }
    return found;
}

/* Move a promise to an earlier time. */
static int move (struct promised_line *line, struct promise *promise, double to)
{
    struct timeline *timeline = line->timeline;
    double start = promise->start;
    double end = promise->end;
    double until = to + promise->length;
    int64_t count = promise->count;
    int64_t least, most;

    promise->start = promise->span[0] = to;
    promise->end = promise->span[1] = until;
    if (until < start) {
        if (timeline_add (timeline, to, until, -count) < 0
            || timeline_add (timeline, start, end, count) < 0)
            return -1;
    }
    else {
        if (timeline_add (timeline, to, start, -count) < 0)
            return -1;
        if (until < end && timeline_add (timeline, until, end, count) < 0)
            return -1;
        if (until > end && timeline_add (timeline, end, until, -count) < 0)
            return -1; /* later by the rounding of a sum */
        start = until;
    }
    if (start < end) {
        timeline_extremes (timeline, start, end, &least, &most);
        if (consider (line, start, end, least - count, most) < 0)
            return -1;
    }
    return 0;
}

int64_t promises_advance (struct promises *promises,
                          const int64_t *jobids,
                          size_t count,
                          double now,
                          int64_t *places,
                          size_t *moved,
                          double *first)
{
    size_t place = 0;

    *moved = 0;
    *first = INFINITY;
    for (struct promised_line *line = promises->lines; line; line = line->next)
        if (now < line->since || now < timeline_begin (line->timeline))
            forget (line); /* the clock was set back */
    while (place < count) {
        struct promise *promise = find (promises, jobids[place]);
        struct promised_line *line;
        double start;

        if (place + LOOK_AHEAD < count)
            __builtin_prefetch (
                &promises->table[home_of (promises, jobids[place + LOOK_AHEAD])]);
        if (!promise || promise->start <= now)
            break;
        line = promise->line;
        if (line->overdrawn)
            break;
        start = earlier (promise, now);
        if (start < promise->start) {
            if (move (line, promise, start) < 0)
                return -1;
            places[(*moved)++] = place;
            *first = first_of (*first, start);
        }
        /* It might move, once units are not kept any more. */
        promise->seen = line->kept ? 0 : openings_so_far (size_of (line, promise->count));
        line->since = now;
        place++;
        if (promise->start <= now)
            break;
    }
    return place;
}

/* -- promises ------------------------------------------------------------- */

struct promises *promises_create (void)
{
    struct promises *promises = calloc (1, sizeof (*promises));

    if (promises && grow_table (promises, 4) < 0) {
        free (promises);
        return NULL;
    }
    return promises;
}

void promises_drop_line (struct promises *promises, struct promised_line *line)
{
    struct promised_line **at = &promises->lines;

    while (*at != line)
        at = &(*at)->next;
    *at = line->next;
    for (int i = 0; i < SIZES; i++)
        free (line->sizes[i].openings);
    free (line);
}

void promises_destroy (struct promises *promises)
{
    if (!promises)
        return;
    while (promises->lines)
        promises_drop_line (promises, promises->lines);
    free (promises->table);
    free (promises);
}

struct promised_line *promises_add_line (struct promises *promises, struct timeline *timeline)
{
    struct promised_line *line = calloc (1, sizeof (*line));

    if (!line)
        return NULL;
    line->timeline = timeline;
    line->since = -INFINITY;
    for (int i = 0; i < SIZES; i++) {
        line->sizes[i].first = 1;
        line->sizes[i].latest = -INFINITY;
        line->sizes[i].shortest = INFINITY;
    }
    line->next = promises->lines;
    return promises->lines = line;
}

void promises_set_line (struct promised_line *line, int64_t kept, bool overdrawn)
{
    line->kept = kept;
    line->overdrawn = overdrawn;
}

int promises_put (struct promises *promises,
                  int64_t jobid,
                  struct promised_line *line,
                  int64_t count,
                  double *span,
                  double length)
{
    double start = span[0], end = span[1];
    struct size *size = size_of (line, count);
    struct promise *promise;

    promises_drop (promises, jobid);
    if (2 * (promises->count + 1) > promises->room && grow_table (promises, promises->bits + 1) < 0)
        return -1;
    promise = &promises->table[place_of (promises, jobid)];
    *promise = (struct promise){
        .there = true,
        .line = line,
        .jobid = jobid,
        .count = count,
        .start = start,
        .end = end,
        .length = length,
        .span = span,
    };
    promises->count++;
    size->members++;
    size->latest = last_of (size->latest, start);
    size->shortest = first_of (size->shortest, end - start);
    return 0;
}

void promises_drop (struct promises *promises, int64_t jobid)
{
    size_t place = place_of (promises, jobid);
    const struct promise *promise = &promises->table[place];
    struct size *size;

    if (!promise->there)
        return;
    size = size_of (promise->line, promise->count);
    size->members--;
    if (!size->members) {
        size->latest = -INFINITY;
        size->shortest = INFINITY;
    }
    take_out (promises, place);
}

int promises_opened (struct promises *promises,
                     struct promised_line *line,
                     double start,
                     double end,
                     int64_t count)
{
    int64_t least, most;

    if (!promises->count)
        return 0; /* later promises are examined in full first */
    timeline_extremes (line->timeline, start, end, &least, &most);
    return consider (line, last_of (start, timeline_begin (line->timeline)), end, least - count, most);
}

size_t promises_due (const struct promises *promises, double now, int64_t *jobids, double *next)
{
    size_t count = 0;

    *next = INFINITY;
    for (size_t i = 0; i < promises->room; i++) {
        const struct promise *one = &promises->table[i];

        if (one->there && one->start <= now)
            jobids[count++] = one->jobid;
        else if (one->there)
            *next = first_of (*next, one->start);
    }
    return count;
}
