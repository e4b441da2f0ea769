/* SPDX-License-Identifier: LGPL-3.0-or-later
 *
 * Room on ranks over time: flux/resource/plan/availability.py, function by function, where the
 * definitions are.
 *
 * Each rank has a line: its amounts that all uses together leave, from each step on.  A query of a
 * span reads the lines of its ranks, most of which have a few steps.  Promises that may be moved
 * are listed on their ranks as well, so that a query can leave out those that come later in the
 * order of starts.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "plan.h"

#define MAX_KINDS 8
#define MAX_MOVED 16
#define MAX_TRIES 4
/* A trial reads some hundred steps: their calls are a tenth of it. */
#define ALWAYS_INLINE static inline __attribute__ ((always_inline))

/* A step of a line: the amounts that are left from its time on. */
struct step {
    uint32_t begun; /* the number of uses that begin with it */
    uint32_t ended; /* the number of uses that end with it */
    int64_t free[]; /* one of each kind; then those that uses that stay leave */
};

/* The amounts left of a rank over time.  Copies share a line until one changes it.  A search reads
 * all lines, so the steps are one piece of memory, behind their times, which alone are searched.
 */
struct line {
    size_t size;        /* of a step */
    size_t count, room; /* of steps */
    size_t sharers;     /* beside the first */
    size_t pinned;      /* uses that begin later and may not be moved */
    size_t listed, list_room;
    struct listed *list; /* the uses here that may be moved, or have a claim, by their starts */
    double times[]; /* those of all steps; that of the first is minus infinity */
};

/* A use on a rank: what a query of the rank reads of it. */
struct listed {
    int64_t number; /* of the use */
    double start, end;
    const int64_t *amounts; /* in the place of a promise that may be moved; NULL: the use has a claim */
};

struct part {
    size_t rank;
    bool taken; /* from promises, in a trial */
    int64_t amounts[MAX_KINDS];
};

/* The place of a use.  Copies share it, since it changes only while a use is made. */
struct place {
    size_t sharers;
    size_t count;
    struct part parts[];
};

/* A demand, or no more than a claim, shared by its uses. */
struct demand {
    size_t sharers;
    int64_t count;
    int64_t each[MAX_KINDS];
    bool per_node;
    bool whole;
    bool stays; /* its promises may not be moved, see Demand.stays */
    size_t claims, bytes; /* kinds of claim; bytes: of a mask */
    int64_t keys[MAX_KINDS];
    unsigned char ranks[]; /* a mask; then of each kind of claim the mask of the ranks claimed */
};

struct use {
    bool entered;
    bool movable; /* a promise that may be moved; else it stays where it is */
    bool away;  /* a trial leaves it out */
    bool waits; /* it is in the queue of a trial */
    double start, end;
    uint64_t sequence; /* grows with each use; of one that is not there: the next unused */
    struct demand *demand; /* that of a promise, or with a claim; or NULL */
    struct place *place;
};

struct item {
    double time;
    int64_t value;
};

struct heap {
    size_t count, room;
    struct item *items;
    /* Which of two with the same time comes first; NULL: either may. */
    bool (*before) (const void *context, int64_t a, int64_t b);
    const void *context;
};

/* A rank on which a promise has room, with the second part of its sort key. */
struct candidate {
    int64_t key[MAX_KINDS];
    size_t rank;
    int64_t units, clear; /* clear: those beside all uses, which come first */
};

/* A part of a promise that a trial puts on its rank, or leaves out there. */
struct laid {
    const struct part *part;
    double start, end;
    int64_t out; /* the number of the promise that is left out; 0: none */
    size_t next; /* the number of another on the rank, from 1 on; 0: none */
};

/* A promise that a trial moves, and its new place. */
struct moved {
    int64_t number;
    struct place *place;
};

/* Promises on other ranks, while all lines stay as they are. */
struct trial {
    struct {
        size_t laid; /* the number of the last part, from 1 on */
        bool taken;  /* from promises */
    } *ranks;
    struct laid *laid;
    size_t laid_count, laid_room;
    struct moved moved[MAX_MOVED];
    size_t moved_count;
    struct heap waiting; /* promises on ranks that were taken, in their order */
    struct candidate *candidates;
    size_t candidate_count, candidate_room;
    struct heap best; /* the candidates by their keys; behind them those that it gave, the last first */
};

struct availability {
    size_t ranks, kinds;
    int64_t *totals;
    struct line **lines;
    struct use *uses;
    size_t count, room; /* of uses: their numbers are from 1 on */
    int64_t unused;     /* the next number to be used again; 0: none */
    size_t movable; /* promises that are entered and may be moved */
    uint64_t sequence;
    int64_t least[MAX_KINDS]; /* of each amount, that a rank has in total */
    /* Of each amount, what all ranks have left together, if `summed`. */
    struct timeline *sums[MAX_KINDS];
    bool summed;
    struct trial trial;
};

/* The place of a promise in the order in which promises are placed. */
struct order {
    double start;
    uint64_t sequence;
};

static const struct order LAST = {INFINITY, UINT64_MAX}; /* behind all: none is left out */
static const struct order JOBS = {-INFINITY, 0};         /* before all: all are left out */

/* Whether a promise that may be moved, and its start, are behind a place in the order. */
static bool is_behind (const struct availability *all,
                       double start,
                       int64_t number,
                       struct order order)
{
    return start > order.start
           || (start == order.start && all->uses[number].sequence > order.sequence);
}

static bool has (const unsigned char *ranks, size_t rank)
{
    return ranks[rank / 8] >> (rank % 8) & 1;
}

/* Go on to the next rank of a mask; the number of ranks: there is none. */
static size_t next_rank (const struct availability *all, const unsigned char *ranks, size_t rank)
{
    while (rank < all->ranks) {
        unsigned char byte = ranks[rank / 8] >> (rank % 8);

        if (!byte) {
            rank = (rank / 8 + 1) * 8;
            continue;
        }
        while (!(byte & 1)) {
            byte >>= 1;
            rank++;
        }
        break;
    }
    return rank < all->ranks ? rank : all->ranks;
}

#define FOR_RANKS(all, mask, rank)                                              \
    for (rank = next_rank (all, mask, 0); rank < (all)->ranks;                  \
         rank = next_rank (all, mask, rank + 1))

/* -- lines -- */

static struct step *step_of (const struct line *line, size_t at)
{
    return (struct step *)((char *)(line->times + line->room) + at * line->size);
}

/* A line with room for some steps of a size, not set; NULL: no memory. */
static struct line *line_alloc (size_t size, size_t room)
{
    size_t each = sizeof (double) + size;

    if (room > (SIZE_MAX - sizeof (struct line)) / each)
        return NULL;
    return malloc (sizeof (struct line) + room * each);
}

/* A line with a step, of some amounts. */
static struct line *line_create (size_t kinds, const int64_t *amounts)
{
    size_t size = sizeof (struct step) + 2 * kinds * sizeof (int64_t), room = 2;
    struct line *line = line_alloc (size, room);

    if (!line)
        return NULL;
    *line = (struct line){.size = size, .room = room, .count = 1};
    line->times[0] = -INFINITY;
    step_of (line, 0)->begun = step_of (line, 0)->ended = 0;
    memcpy (step_of (line, 0)->free, amounts, kinds * sizeof (int64_t));
    memcpy (step_of (line, 0)->free + kinds, amounts, kinds * sizeof (int64_t));
    return line;
}

/* A copy of a line with room for some steps, to which its promises are yet to be given. */
static struct line *line_copy (const struct line *from, size_t room)
{
    struct line *line = line_alloc (from->size, room);

    if (!line)
        return NULL;
    *line = *from;
    line->room = room;
    memcpy (line->times, from->times, from->count * sizeof (double));
    memcpy (step_of (line, 0), step_of (from, 0), from->count * from->size);
    line->sharers = 0;
    return line;
}

/* The place of the step that a time is in. */
static size_t step_at (const struct line *line, double time)
{
    if (line->count < 2 || time < line->times[1]) /* as most are that are now */
        return 0;
    return step_in (line->times, line->count, time);
}

/* Move the steps from a place on by one. */
static void line_shift (struct line *line, size_t from, size_t to)
{
    memmove (line->times + to, line->times + from, (line->count - from) * sizeof (double));
    memmove (step_of (line, to), step_of (line, from), (line->count - from) * line->size);
    line->count += to - from;
}

/* The place of the step that begins at a time, which is made if there is none; there is room. */
static size_t step_from (struct line *line, double time)
{
    size_t at = step_at (line, time);

    if (line->times[at] == time)
        return at;
    line_shift (line, at, at + 1); /* the one before is as it was */
    line->times[++at] = time;
    step_of (line, at)->begun = step_of (line, at)->ended = 0;
    return at;
}

/* Drop a step with which no use begins or ends. */
static void line_join (struct line *line, size_t at)
{
    if (at > 0 && !step_of (line, at)->begun && !step_of (line, at)->ended)
        line_shift (line, at + 1, at);
}

/* Enter (sign 1) or take out (-1) amounts of a use, in its span; there is room for two more steps. */
static void line_change (struct line *line,
                         size_t kinds,
                         const struct use *use,
                         const int64_t *amounts,
                         int sign)
{
    double start = use->start, end = use->end;
    size_t first, last, at, kind;

    if (!(start < end))
        return;
    first = step_from (line, start);
    last = end < INFINITY ? step_from (line, end) : line->count;
    for (at = first; at < last; at++)
        for (kind = 0; kind < kinds; kind++) {
            step_of (line, at)->free[kind] -= sign * amounts[kind];
            if (!use->movable)
                step_of (line, at)->free[kinds + kind] -= sign * amounts[kind];
        }
    step_of (line, first)->begun += sign;
    if (last < line->count) {
        step_of (line, last)->ended += sign;
        line_join (line, last);
    }
    line_join (line, first);
}

static void line_release (struct line *line)
{
    if (!line || line->sharers--)
        return;
    free (line->list);
    free (line);
}

/* The line of a rank, to be changed: not shared any more, and with room for two more steps. */
static struct line *own_line (struct availability *all, size_t rank)
{
    struct line *line = all->lines[rank], *copy;

    if (!line->sharers && line->count + 2 <= line->room)
        return line;
    if (!(copy = line_copy (line, 2 * (line->count + 2))))
        return NULL;
    if (line->sharers) {
        copy->list_room = line->listed;
        if (!(copy->list = duplicate (line->list, line->listed * sizeof (struct listed)))) {
            free (copy);
            return NULL;
        }
        line->sharers--;
    } else
        free (line); /* the copy has its list */
    return all->lines[rank] = copy;
}

/* A place with room for some parts; NULL: no memory. */
static struct place *place_alloc (size_t room)
{
    return calloc (1, sizeof (struct place) + room * sizeof (struct part));
}

/* A new part of a place, on a rank and without amounts; there is room. */
static struct part *add_part (struct place *place, size_t rank)
{
    struct part *part = place->parts + place->count++;

    part->rank = rank;
    return part;
}

static void place_release (struct place *place)
{
    if (place && !place->sharers--)
        free (place);
}

/* Whether the claims of two demands exclude each other from a rank. */
static bool are_apart (const struct demand *a, const struct demand *b, size_t rank)
{
    size_t kind;

    for (kind = 0; kind < a->claims; kind++)
        if (a->keys[kind] != b->keys[kind]
            && (has (a->ranks + (kind + 1) * a->bytes, rank)
                || has (b->ranks + (kind + 1) * b->bytes, rank)))
            return true;
    return false;
}

static bool has_claim (const struct use *use)
{
    return use->demand && use->demand->claims;
}

struct demand *demand_create (const struct availability *all,
                              int64_t count,
                              const int64_t *each,
                              bool per_node,
                              bool whole,
                              size_t claims,
                              const int64_t *keys,
                              const unsigned char *ranks)
{
    size_t bytes = all->ranks / 8 + 1, rank, kind;
    struct demand *demand;
    int64_t usable = 0;

    if (claims > MAX_KINDS || !(demand = calloc (1, sizeof (*demand) + (claims + 1) * bytes)))
        return NULL;
    demand->count = count;
    memcpy (demand->each, each, all->kinds * sizeof (int64_t));
    demand->per_node = per_node;
    demand->whole = whole;
    demand->claims = claims;
    demand->bytes = bytes;
    memcpy (demand->keys, keys, claims * sizeof (int64_t));
    memcpy (demand->ranks, ranks, (claims + 1) * bytes);
    FOR_RANKS (all, ranks, rank) {
        usable++;
        for (kind = 0; kind < all->kinds; kind++)
            if (all->totals[rank * all->kinds + kind] < each[kind])
                demand->ranks[rank / 8] &= ~(1 << (rank % 8)); /* it can have none */
    }
    demand->stays = claims || (whole && count == usable);
    return demand;
}

void demand_release (struct demand *demand)
{
    if (demand && !demand->sharers--)
        free (demand);
}

/* -- heaps: the least of many, one after the other -- */

static bool item_before (const struct heap *heap, const struct item *a, const struct item *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    return heap->before && heap->before (heap->context, a->value, b->value);
}

static void heap_sink (struct heap *heap, size_t at)
{
    struct item item = heap->items[at];

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= heap->count)
            break;
        if (child + 1 < heap->count
            && item_before (heap, heap->items + child + 1, heap->items + child))
            child++;
        if (!item_before (heap, heap->items + child, &item))
            break;
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = item;
}

static int heap_push (struct heap *heap, double time, int64_t value)
{
    struct item item = {time, value};
    size_t at = heap->count;

    if (reserve (&heap->items, &heap->room, at + 1, sizeof (item)) < 0)
        return -1;
    heap->count++;
    for (; at && item_before (heap, &item, heap->items + (at - 1) / 2); at = (at - 1) / 2)
        heap->items[at] = heap->items[(at - 1) / 2];
    heap->items[at] = item;
    return 0;
}

static struct item heap_pop (struct heap *heap)
{
    struct item first = heap->items[0];

    heap->items[0] = heap->items[--heap->count];
    if (heap->count)
        heap_sink (heap, 0);
    return heap->items[heap->count] = first;
}

/* -- creation and destruction -- */

static bool candidate_before (const void *context, int64_t a, int64_t b)
{
    const struct trial *trial = context;
    const struct candidate *one = trial->candidates + a;
    const struct candidate *other = trial->candidates + b;
    size_t at;

    for (at = 0; at < MAX_KINDS; at++)
        if (one->key[at] != other->key[at])
            return one->key[at] < other->key[at];
    return one->rank > other->rank;
}

static bool earlier_in_order (const void *context, int64_t a, int64_t b)
{
    const struct availability *all = context;

    return all->uses[a].sequence < all->uses[b].sequence;
}

/* Make what trials need; NULL: no memory. */
static struct trial *begin_trials (struct availability *all)
{
    all->trial = (struct trial){
        .ranks = calloc (all->ranks + 1, sizeof (*all->trial.ranks)),
        .waiting = {.before = earlier_in_order, .context = all},
        .best = {.before = candidate_before, .context = &all->trial},
    };
    return all->trial.ranks ? &all->trial : NULL;
}

struct availability *availability_create (size_t ranks,
                                          size_t kinds,
                                          const int64_t *totals,
                                          const int64_t *least)
{
    struct availability *all;
    size_t rank;

    if (kinds == 0 || kinds > MAX_KINDS || ranks > SIZE_MAX / 128 || !(all = calloc (1, sizeof (*all))))
        return NULL;
    all->ranks = ranks;
    all->kinds = kinds;
    all->totals = duplicate (totals, ranks * kinds * sizeof (int64_t));
    memcpy (all->least, least, kinds * sizeof (int64_t));
    all->lines = calloc (ranks + 1, sizeof (struct line *));
    all->uses = calloc (1, sizeof (struct use)); /* number 0 is none */
    all->count = all->room = 1;
    if (!all->uses || !begin_trials (all) || !all->totals || !all->lines)
        goto error;
    for (rank = 0; rank < ranks; rank++)
        if (!(all->lines[rank] = line_create (kinds, totals + rank * kinds)))
            goto error;
    return all;
error:
    availability_destroy (all);
    return NULL;
}

void availability_destroy (struct availability *all)
{
    size_t at;

    if (!all)
        return;
    for (at = 0; all->lines && at < all->ranks; at++)
        line_release (all->lines[at]);
    for (at = 0; all->uses && at < all->count; at++) {
        place_release (all->uses[at].place);
        demand_release (all->uses[at].demand);
    }
    for (at = 0; at < all->kinds; at++)
        timeline_destroy (all->sums[at]);
    free (all->lines);
    free (all->totals);
    free (all->uses);
    free (all->trial.ranks);
    free (all->trial.laid);
    free (all->trial.waiting.items);
    free (all->trial.candidates);
    free (all->trial.best.items);
    free (all);
}

struct availability *availability_copy (const struct availability *from)
{
    struct availability *all = duplicate (from, sizeof (*from));
    bool no_memory;
    size_t at;

    if (!all)
        return NULL;
    no_memory = !begin_trials (all);
    all->room = all->count;
    for (at = 0; at < all->kinds; at++) {
        all->sums[at] = all->summed ? timeline_copy (from->sums[at]) : NULL;
        no_memory = no_memory || (all->summed && !all->sums[at]);
    }
    all->totals = duplicate (from->totals, from->ranks * from->kinds * sizeof (int64_t));
    all->lines = duplicate (from->lines, from->ranks * sizeof (struct line *));
    all->uses = duplicate (from->uses, from->count * sizeof (struct use));
    for (at = 0; all->lines && at < all->ranks; at++)
        all->lines[at]->sharers++;
    for (at = 0; all->uses && at < all->count; at++) {
        if (all->uses[at].place)
            all->uses[at].place->sharers++;
        if (all->uses[at].demand)
            all->uses[at].demand->sharers++;
    }
    if (!no_memory && all->totals && all->lines && all->uses)
        return all;
    availability_destroy (all);
    return NULL;
}

/* -- uses -- */

/* Enter (sign 1) or take out (-1) the amounts that a use takes of all ranks together. */
static int change_sums (struct availability *all, const struct use *use, int sign)
{
    int64_t amounts[MAX_KINDS] = {0};
    size_t at, kind;

    for (at = 0; at < use->place->count; at++)
        for (kind = 0; kind < all->kinds; kind++)
            amounts[kind] -= sign * use->place->parts[at].amounts[kind];
    for (kind = 0; kind < all->kinds; kind++)
        if (amounts[kind]
            && timeline_add (all->sums[kind], use->start, use->end, amounts[kind]) < 0)
            return -1;
    return 0;
}

/* Let a use count (sign 1), or count no more (-1). */
static int change (struct availability *all, int64_t number, int sign)
{
    struct use *use = all->uses + number;
    size_t at, place;

    if (all->summed && change_sums (all, use, sign) < 0)
        return -1;
    for (at = 0; at < use->place->count; at++) {
        struct part *part = use->place->parts + at;
        struct line *line = own_line (all, part->rank);

        if (!line)
            return -1;
        line_change (line, all->kinds, use, part->amounts, sign);
        if (!use->movable)
            line->pinned += use->start > -INFINITY ? sign : 0;
        if (!use->movable && !has_claim (use))
            continue;
        if (sign > 0) {
            if (reserve (&line->list, &line->list_room, line->listed + 1, sizeof (struct listed)) < 0)
                return -1;
            place = line->listed++;
            for (; place && line->list[place - 1].start > use->start; place--)
                line->list[place] = line->list[place - 1];
            line->list[place] = (struct listed){
                number, use->start, use->end, use->movable ? part->amounts : NULL};
        } else {
            for (place = 0; place < line->listed && line->list[place].number != number;)
                place++;
            if (place < line->listed)
                memmove (line->list + place,
                         line->list + place + 1,
                         (--line->listed - place) * sizeof (struct listed));
        }
    }
    use->entered = sign > 0;
    if (use->movable)
        all->movable += sign;
    return 0;
}

/* Enter a new use, which owns its place from then on; return its number. */
static int64_t new_use (struct availability *all,
                        double start,
                        double end,
                        struct demand *demand,
                        struct place *place)
{
    struct use *use;
    int64_t number;

    if (all->unused) {
        number = all->unused;
        all->unused = (int64_t)all->uses[number].sequence;
    } else {
        if (reserve (&all->uses, &all->room, all->count + 1, sizeof (struct use)) < 0) {
            place_release (place);
            return -1;
        }
        number = (int64_t)all->count++;
    }
    use = all->uses + number;
    *use = (struct use){.start = start, .end = end, .sequence = ++all->sequence, .place = place};
    if ((use->demand = demand)) {
        use->movable = !demand->stays;
        demand->sharers++;
    }
    return change (all, number, 1) < 0 ? -1 : number;
}

int64_t availability_use (struct availability *all,
                          double start,
                          double end,
                          struct demand *demand,
                          size_t count,
                          const unsigned char *ranks,
                          const int64_t *amounts)
{
    size_t at, rank, room = 0, bytes = all->ranks / 8 + 1;
    struct place *place;

    for (at = 0; at < count; at++)
        FOR_RANKS (all, ranks + at * bytes, rank)
            room++;
    if (!(place = place_alloc (room)))
        return -1;
    for (at = 0; at < count; at++, amounts += all->kinds)
        FOR_RANKS (all, ranks + at * bytes, rank)
            memcpy (add_part (place, rank)->amounts, amounts, all->kinds * sizeof (int64_t));
    return new_use (all, start, end, demand, place);
}

int availability_enter (struct availability *all, int64_t number)
{
    return all->uses[number].entered ? 0 : change (all, number, 1);
}

int availability_leave (struct availability *all, int64_t number)
{
    return all->uses[number].entered ? change (all, number, -1) : 0;
}

int availability_drop (struct availability *all, int64_t number)
{
    struct use *use = all->uses + number;

    if (availability_leave (all, number) < 0)
        return -1;
    place_release (use->place);
    demand_release (use->demand);
    *use = (struct use){.sequence = (uint64_t)all->unused};
    all->unused = number;
    return 0;
}

size_t availability_amounts_of (const struct availability *all,
                                int64_t number,
                                int64_t *ranks,
                                int64_t *amounts)
{
    const struct place *place = all->uses[number].place;
    size_t at;

    for (at = 0; ranks && at < place->count; at++) {
        ranks[at] = (int64_t)place->parts[at].rank;
        memcpy (amounts + at * all->kinds,
                place->parts[at].amounts,
                all->kinds * sizeof (int64_t));
    }
    return place->count;
}

static void mark (unsigned char *ranks, size_t rank)
{
    ranks[rank / 8] |= 1 << (rank % 8);
}

/* -- questions -- */

/* Whether a use excludes a claim from a rank at a time.  Uses with a claim are never moved. */
static bool is_closed (const struct availability *all,
                       size_t rank,
                       double time,
                       const struct demand *claim)
{
    const struct line *line = all->lines[rank];
    size_t at;

    for (at = 0; at < line->listed && line->list[at].start <= time; at++) {
        const struct listed *one = line->list + at;

        if (!one->amounts && time < one->end
            && are_apart (claim, all->uses[one->number].demand, rank))
            return true;
    }
    return false;
}

/* The amounts of a rank that uses leave at a step of its line, without the promises that are behind a
 * place in the order; in the buffer, unless they are those of the step.
 */
ALWAYS_INLINE const int64_t *free_at (const struct availability *all,
                                      size_t rank,
                                      size_t step,
                                      double time,
                                      struct order order,
                                      int64_t *buffer)
{
    const struct line *line = all->lines[rank];
    const int64_t *left = step_of (line, step)->free;
    size_t at, kind, kinds = all->kinds;

    if (order.start == -INFINITY)
        return left + kinds;
    if (line->times[step] >= order.start) /* one that is behind begins with this step, or before */
        for (at = 0; at < line->listed && line->list[at].start <= time; at++) {
            const struct listed *one = line->list + at;

            if (one->amounts && time < one->end && is_behind (all, one->start, one->number, order)) {
                for (kind = 0; kind < kinds; kind++)
                    buffer[kind] = left[kind] + one->amounts[kind];
                left = buffer;
            }
        }
    return left;
}

/* The units that fit in the amounts left of a rank, at most some; none if these are less than nothing. */
static int64_t units_in (const struct availability *all,
                         const int64_t *each,
                         const int64_t *left,
                         int64_t units)
{
    size_t kind;

    for (kind = 0; kind < all->kinds; kind++) {
        if (left[kind] < each[kind])
            return 0;
        if (each[kind] && units > 1 && left[kind] / each[kind] < units)
            units = left[kind] / each[kind];
    }
    return units;
}

/* The amounts of one unit on a rank. */
static const int64_t *unit_on (const struct availability *all,
                               const struct demand *demand,
                               size_t rank)
{
    return demand->whole ? all->totals + rank * all->kinds : demand->each;
}

static int64_t most_units (const struct demand *demand)
{
    return demand->per_node || demand->whole ? 1 : demand->count;
}

/* Find the least amounts of a rank that uses leave at some moment of a span, each kind for itself, without
 * the promises behind a place in the order, and as a trial leaves out and puts there; false if these are
 * less than a need, or a use excludes the claim, if any.
 */
ALWAYS_INLINE bool has_room (const struct availability *all,
                             size_t rank,
                             double start,
                             double end,
                             struct order order,
                             const struct demand *claim,
                             const int64_t *need,
                             int64_t *least)
{
    const struct line *line = all->lines[rank];
    size_t first = step_at (line, start), step, kind, at, count = 0;
    /* Later uses only end. */
    double begun = line->pinned ? INFINITY : line->listed ? order.start : start;
    const struct laid *laid[2 * MAX_MOVED + 2];
    int64_t buffer[MAX_KINDS];

    for (at = all->trial.ranks[rank].laid; at;) {
        const struct laid *one = all->trial.laid + at - 1;

        /* Among running jobs no part is laid; a promise that is behind is left out already. */
        if (one->end > start
            && (one->out ? !is_behind (all, one->start, one->out, order) : order.start > -INFINITY))
            laid[count++] = one;
        at = one->next;
    }
    for (step = first; step < line->count; step++) {
        const int64_t *left;
        double time = step > first ? line->times[step] : start;

        if (step > first && (time > begun || time >= end))
            break;
        if (step > first && !step_of (line, step)->begun)
            continue; /* nothing less is left */
        if (claim && claim->claims && is_closed (all, rank, time, claim))
            return false;
        left = free_at (all, rank, step, time, order, buffer);
        for (at = 0; at < count; at++)
            if (time >= laid[at]->start && time < laid[at]->end) {
                for (kind = 0; kind < all->kinds; kind++)
                    buffer[kind] = left[kind] + (laid[at]->out ? 1 : -1) * laid[at]->part->amounts[kind];
                left = buffer;
            }
        for (kind = 0; kind < all->kinds; kind++) {
            if (left[kind] < need[kind])
                return false;
            if (step == first || left[kind] < least[kind])
                least[kind] = left[kind];
        }
    }
    return true;
}

static int64_t units_on (const struct availability *all,
                         size_t rank,
                         const struct demand *demand,
                         double start,
                         double end,
                         struct order order)
{
    const int64_t *each = unit_on (all, demand, rank);
    int64_t left[MAX_KINDS];

    if (!has_room (all, rank, start, end, order, demand, each, left))
        return 0;
    return units_in (all, each, left, most_units (demand));
}

/* Count the units of a demand for which there is room beside the uses up to a place in the order, until
 * these are enough.  ranks, each: as for availability_room().
 */
static int64_t count_units (const struct availability *all,
                            const struct demand *demand,
                            double start,
                            double end,
                            struct order order,
                            int64_t enough,
                            unsigned char *ranks,
                            int64_t *each)
{
    int64_t sum = 0;
    size_t rank;

    for (rank = next_rank (all, demand->ranks, 0); rank < all->ranks && sum < enough;
         rank = next_rank (all, demand->ranks, rank + 1)) {
        int64_t units = units_on (all, rank, demand, start, end, order);

        if (units && ranks)
            mark (ranks, rank);
        if (each)
            each[rank] = units;
        sum += units;
    }
    return sum;
}

int64_t availability_room (const struct availability *all,
                           const struct demand *demand,
                           double start,
                           double end,
                           unsigned char *ranks,
                           int64_t *each)
{
    return count_units (all, demand, start, end, LAST, INT64_MAX, ranks, each);
}

/* Whether a demand fits beside the uses up to a place in the order. */
static bool fits (const struct availability *all,
                  const struct demand *demand,
                  double start,
                  double end,
                  struct order order)
{
    int64_t wanted = demand->count;

    return count_units (all, demand, start, end, order, wanted, NULL, NULL) >= wanted;
}

/* Whether a use has room from a time on beside the uses up to a place in the order, of which it is one; with
 * `taken`, on those of its ranks that a trial takes from promises.
 */
static bool holds (const struct availability *all,
                   const struct use *use,
                   double since,
                   struct order order,
                   bool taken)
{
    static const int64_t none[MAX_KINDS];
    int64_t least[MAX_KINDS];
    size_t at;

    for (at = 0; at < use->place->count; at++) {
        size_t rank = use->place->parts[at].rank;

        if ((!taken || all->trial.ranks[rank].taken)
            && !has_room (all, rank, since, use->end, order, use->demand, none, least))
            return false;
    }
    return true;
}

bool availability_overdrawn (const struct availability *all, int64_t number, double since)
{
    const struct use *use = all->uses + number;

    return !holds (all, use, last_of (use->start, since), LAST, false);
}

void availability_taken (const struct availability *all,
                         const struct demand *claim,
                         double start,
                         double end,
                         unsigned char *ranks)
{
    size_t at, part;

    for (at = 0; at < all->count; at++) {
        const struct use *use = all->uses + at;

        if (!use->entered || (claim ? !has_claim (use) : use->start == -INFINITY)
            || use->end <= start || (use->start > start && use->start >= end))
            continue;
        for (part = 0; part < use->place->count; part++) {
            size_t rank = use->place->parts[part].rank;

            if (!claim || are_apart (claim, use->demand, rank))
                mark (ranks, rank);
        }
    }
}

/* -- searching -- */

/* The first time from `after` on at which a demand fits beside the uses up to a place in the order;
 * infinity: none; minus infinity: no memory.  The heap has the changes of the units that each rank can
 * hold for the length of time, by its start.  A fall between two steps is entered with the later one:
 * where there is room by their sum, it is checked again.
 */
static double search (struct availability *all,
                      const struct demand *demand,
                      double length,
                      double after,
                      struct order order)
{
    struct heap heap = {0};
    double found = INFINITY;
    bool risen = false; /* at this time */
    int64_t sum = 0;
    size_t rank, step;

    if (fits (all, demand, after, after + length, order))
        return after;
    FOR_RANKS (all, demand->ranks, rank) {
        const struct line *line = all->lines[rank];
        int64_t before = 0;

        for (step = step_at (line, after); step < line->count; step++) {
            double time = last_of (line->times[step], after);
            int64_t units = units_on (all, rank, demand, time, time + length, order);

            if (units != before && heap_push (&heap, time, units - before) < 0) {
                found = -INFINITY;
                goto done;
            }
            before = units;
        }
    }
    while (heap.count) {
        struct item item = heap_pop (&heap);

        sum += item.value;
        risen |= item.value > 0;
        if (heap.count && heap.items[0].time == item.time)
            continue;
        if (risen && sum >= demand->count
            && fits (all, demand, item.time, item.time + length, order)) {
            found = item.time;
            break;
        }
        risen = false;
    }
done:
    free (heap.items);
    return found;
}

/* -- promises -- */

/* Put the parts of a promise on their ranks, or leave those of a promise with a number out there. */
static int lay_parts (struct trial *trial,
                      const struct place *place,
                      double start,
                      double end,
                      int64_t out)
{
    if (reserve (&trial->laid,
                 &trial->laid_room,
                 trial->laid_count + place->count,
                 sizeof (struct laid)) < 0)
        return -1;
    for (size_t at = 0; at < place->count; at++) {
        const struct part *part = place->parts + at;

        trial->laid[trial->laid_count]
            = (struct laid){part, start, end, out, trial->ranks[part->rank].laid};
        trial->ranks[part->rank].laid = ++trial->laid_count;
    }
    return 0;
}

/* Leave a promise out of all questions, until the end of the trial. */
static int leave_out (struct availability *all, int64_t number)
{
    struct use *use = all->uses + number;

    use->away = true;
    return lay_parts (&all->trial, use->place, use->start, use->end, number);
}

/* Set the second part of the sort key of a candidate, and return the first; see
 * Availability._preference().
 */
static double prefer (const struct availability *all,
                      const struct demand *demand,
                      double start,
                      double now,
                      struct candidate *one)
{
    const int64_t *total = all->totals + one->rank * all->kinds;
    const int64_t *each = demand->whole ? total : demand->each;
    const struct line *line = all->lines[one->rank];
    const int64_t *left = step_of (line, step_at (line, now))->free + all->kinds;
    int64_t unwanted = 0;
    bool idle = true;
    size_t kind;

    for (kind = 0; kind < all->kinds; kind++) {
        idle = idle && left[kind] >= each[kind];
        unwanted += demand->each[kind] ? 0 : total[kind];
    }
    if (start != now)
        left = step_of (line, step_at (line, start))->free + all->kinds;
    for (kind = 0; kind < all->kinds; kind++)
        if (demand->each[kind])
            one->key[all->kinds - 1 - kind] = left[kind];
    return 2.0 * unwanted + idle;
}

/* Find ranks for a promise beside the uses up to its place in the order: those with clear room first.
 * Returns whether there are enough, which *found has then; -1: no memory.
 */
static int find_place (struct availability *all,
                       const struct demand *demand,
                       double start,
                       double end,
                       double now,
                       struct order order,
                       bool may_move,
                       struct place **found)
{
    struct trial *trial = &all->trial;
    int64_t left = demand->count;
    struct place *place;
    size_t rank, at, kind;

    trial->candidate_count = trial->best.count = 0;
    FOR_RANKS (all, demand->ranks, rank) {
        int64_t units = units_on (all, rank, demand, start, end, may_move ? order : LAST);

        if (!units)
            continue;
        if (reserve (&trial->candidates,
                     &trial->candidate_room,
                     trial->candidate_count + 1,
                     sizeof (struct candidate)) < 0)
            return -1;
        trial->candidates[trial->candidate_count++]
            = (struct candidate){.rank = rank, .units = units};
        left -= units;
    }
    if (left > 0)
        return 0;
    for (at = trial->candidate_count; at--;) { /* of equal ones the last is the best */
        double first = prefer (all, demand, order.start, now, trial->candidates + at);

        if (heap_push (&trial->best, first, (int64_t)at) < 0)
            return -1;
    }
    left = demand->count;
    at = trial->candidate_count < (size_t)left ? trial->candidate_count : (size_t)left;
    if (!(place = *found = place_alloc (at)))
        return -1;
    for (at = 0; left; at++) {
        bool taken = at >= trial->candidate_count; /* clear units do not suffice */
        int64_t value = taken ? trial->best.items[2 * trial->candidate_count - 1 - at].value
                              : heap_pop (&trial->best).value;
        struct candidate *one = trial->candidates + value;
        const int64_t *total = all->totals + one->rank * all->kinds;
        struct part *part = place->parts;
        int64_t units;

        if (!taken)
            one->clear = may_move ? units_on (all, one->rank, demand, start, end, LAST) : one->units;
        units = taken ? one->units - one->clear : one->clear;
        if (!units)
            continue;
        if (units > left)
            units = left;
        left -= units;
        if (taken && one->clear)
            while (part->rank != one->rank)
                part++;
        else
            part = add_part (place, one->rank);
        part->taken = taken;
        for (kind = 0; kind < all->kinds; kind++)
            part->amounts[kind] += demand->whole ? total[kind] : units * demand->each[kind];
    }
    return 1;
}

/* Put a promise on ranks, and queue the promises behind its place in the order that it takes them from. */
static int lay (struct availability *all,
                const struct place *place,
                struct order order,
                double end)
{
    struct trial *trial = &all->trial;
    size_t at, index;

    if (lay_parts (trial, place, order.start, end, 0) < 0)
        return -1;
    for (at = 0; at < place->count; at++) {
        const struct part *part = place->parts + at;
        const struct line *line = all->lines[part->rank];

        trial->ranks[part->rank].taken |= part->taken;
        if (!trial->ranks[part->rank].taken)
            continue;
        for (index = 0; index < line->listed && line->list[index].start < end; index++) {
            const struct listed *one = line->list + index;
            struct use *other = all->uses + one->number;

            if (!one->amounts || other->waits || other->away || !is_behind (all, one->start, one->number, order))
                continue;
            if (heap_push (&trial->waiting, other->start, one->number) < 0)
                return -1;
            other->waits = true;
        }
    }
    return 0;
}

/* Place the queued promises again; return whether all have ranks, or -1: no memory. */
static int settle (struct availability *all, double now)
{
    struct trial *trial = &all->trial;

    while (trial->waiting.count) {
        int64_t number = heap_pop (&trial->waiting).value;
        struct use *use = all->uses + number;
        struct order order = {use->start, use->sequence};
        struct place *place;
        int placed;

        use->waits = false;
        if (holds (all, use, use->start, order, true))
            continue;
        if (trial->moved_count == MAX_MOVED)
            return 0;
        if (leave_out (all, number) < 0)
            return -1;
        placed = find_place (all, use->demand, use->start, use->end, now, order, true, &place);
        if (placed <= 0)
            return placed;
        trial->moved[trial->moved_count++] = (struct moved){number, place};
        if (lay (all, place, order, use->end) < 0)
            return -1;
    }
    return 1;
}

/* End a trial; with `keep`, the promises that it moved are moved. */
static int finish (struct availability *all, bool keep)
{
    struct trial *trial = &all->trial;
    int result = 0;

    while (trial->laid_count) {
        const struct laid *laid = trial->laid + --trial->laid_count;

        trial->ranks[laid->part->rank].laid = 0;
        trial->ranks[laid->part->rank].taken = false;
        if (laid->out)
            all->uses[laid->out].away = false;
    }
    while (trial->waiting.count)
        all->uses[trial->waiting.items[--trial->waiting.count].value].waits = false;
    while (trial->moved_count) {
        struct moved *moved = trial->moved + --trial->moved_count;
        struct use *use = all->uses + moved->number;
        struct place *before = use->place;

        if (keep) {
            if (change (all, moved->number, -1) < 0)
                result = -1;
            use->place = moved->place;
            moved->place = before;
            if (change (all, moved->number, 1) < 0)
                result = -1;
        }
        place_release (moved->place);
    }
    return result;
}

int64_t availability_book (struct availability *all,
                           struct demand *demand,
                           double start,
                           double end,
                           double now,
                           bool may_move,
                           bool keep)
{
    struct order order = {start > -INFINITY ? start : now, 0}; /* before those that begin with it */
    struct place *place = NULL;
    int placed;

    may_move = may_move && all->movable;
    placed = find_place (all, demand, start, end, now, order, may_move, &place);
    if (placed > 0 && may_move)
        placed = lay (all, place, order, end) < 0 ? -1 : settle (all, now);
    if (finish (all, keep && placed > 0) < 0)
        placed = -1;
    if (placed > 0 && keep)
        return new_use (all, start, end, demand, place);
    place_release (place);
    return placed;
}

/* The first end of a use after a time. */
static double next_end (const struct availability *all, double time)
{
    double first = INFINITY;
    size_t at;

    for (at = 0; at < all->count; at++)
        if (all->uses[at].entered && all->uses[at].end > time && all->uses[at].end < first)
            first = all->uses[at].end;
    return first;
}

double availability_earliest (struct availability *all,
                              struct demand *demand,
                              double length,
                              double after,
                              double now,
                              bool may_move)
{
    double clear = search (all, demand, length, after, LAST);
    double time;
    int tries = MAX_TRIES;

    if (!may_move || !all->movable || clear <= after)
        return clear;
    time = search (all, demand, length, after, JOBS);
    if (time == -INFINITY)
        return time;
    for (; tries && time < clear; time = next_end (all, time)) {
        int64_t can;

        if (!fits (all, demand, time, time + length, JOBS))
            continue;
        tries--;
        can = availability_book (all, demand, time, time + length, now, true, false);
        if (can)
            return can < 0 ? -INFINITY : time;
    }
    return clear;
}

/* -- all ranks together -- */

static int sum_up (struct availability *all)
{
    size_t at, kind, rank;

    for (kind = 0; kind < all->kinds; kind++) {
        int64_t total = 0;

        for (rank = 0; rank < all->ranks; rank++)
            total += all->totals[rank * all->kinds + kind];
        timeline_destroy (all->sums[kind]); /* of a sum that failed */
        if (!(all->sums[kind] = timeline_create (-INFINITY, total)))
            return -1;
    }
    for (at = 0; at < all->count; at++)
        if (all->uses[at].entered && change_sums (all, all->uses + at, 1) < 0)
            return -1;
    all->summed = true;
    return 0;
}

double availability_enough_until (struct availability *all,
                                  const struct demand *demand,
                                  double since)
{
    const int64_t *each = demand->whole ? all->least : demand->each;
    double until = INFINITY;
    size_t kind;

    if (!all->summed && sum_up (all) < 0)
        return -INFINITY;
    for (kind = 0; kind < all->kinds; kind++)
        until = first_of (until,
                          timeline_below (all->sums[kind], demand->count * each[kind], since));
    return until;
}

int availability_can_start (struct availability *all,
                            struct demand *demand,
                            double now,
                            double end,
                            bool may_move)
{
    if (fits (all, demand, -INFINITY, end, LAST))
        return 1;
    return may_move && all->movable
               ? availability_book (all, demand, -INFINITY, end, now, true, false)
               : 0;
}

int64_t availability_first_to_start (struct availability *all,
                                     size_t count,
                                     const int64_t *numbers,
                                     double now,
                                     bool may_move,
                                     bool summed,
                                     size_t most,
                                     bool *can)
{
    size_t at;
    int64_t found;

    *can = false;
    for (at = 0; at < count; at++) {
        const struct use *use = all->uses + numbers[at];
        struct demand *demand = use->demand;
        double end = now + (use->end - use->start), until = INFINITY;

        if (!use->movable || use->start <= now)
            break;
        if (!fits (all, demand, -INFINITY, -INFINITY, LAST))
            continue;
        if (summed && (until = availability_enough_until (all, demand, now)) == -INFINITY)
            return -1;
        if (until < use->start && until < end)
            continue; /* until its start, the promise is not in its own way */
        if (!most--)
            break;
        /* Most have no clear room, which fits() would look for. */
        found = leave_out (all, numbers[at]);
        if (!found)
            found = availability_book (all, demand, -INFINITY, end, now, may_move, false);
        finish (all, false);
        if (found < 0)
            return -1;
        if ((*can = found))
            break;
    }
    return at;
}
