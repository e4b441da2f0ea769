/* SPDX-License-Identifier: LGPL-3.0-or-later
 *
 * The functions that flux/resource/plan/compiled.py calls.  build.py gives this file unchanged to
 * cffi, which reads declarations only: no preprocessor here.
 *
 * Times are seconds since the epoch, infinity where there is no end.  Functions that return an int
 * return 0, or -1 if there is no memory left.
 */

/* A step function of time, as flux.resource.plan.timeline.CountTimeline: results and costs of
 * a function are documented there, at the method of its name.
 */
struct timeline;

struct timeline *timeline_create (double start, int64_t value);
struct timeline *timeline_copy (const struct timeline *line);
void timeline_destroy (struct timeline *line);

double timeline_begin (const struct timeline *line);

int timeline_add (struct timeline *line, double start, double end, int64_t delta);
void timeline_forget (struct timeline *line, double time);

int64_t timeline_least (const struct timeline *line, double start, double end);
/* The least and the greatest value of a span, of which that before the first step is left out. */
void timeline_extremes (const struct timeline *line,
                        double start,
                        double end,
                        int64_t *least,
                        int64_t *most);
/* The start of the span before a time in which the value is at least `value`: the time itself if it is
 * less just before, minus infinity if the span includes the first step.
 */
double timeline_since (const struct timeline *line, int64_t value, double time);
double timeline_below (const struct timeline *line, int64_t value, double start);
/* until: moments from then on need not be found */
double timeline_first (const struct timeline *line,
                       int64_t value,
                       double length,
                       double start,
                       double limit,
                       double until);

/* The promises that are counted in some timelines, as flux.resource.plan.timeline.PromiseMoves
 * has them: to move them to earlier times, one after another.
 */
struct promises;
struct promised_line;

struct promises *promises_create (void);
void promises_destroy (struct promises *promises);

/* Register a timeline for promises.  It must stay until promises_drop_line() or
 * promises_destroy().  NULL: no memory.
 */
struct promised_line *promises_add_line (struct promises *promises, struct timeline *line);
/* Unregister a timeline, which has no promises any more. */
void promises_drop_line (struct promises *promises, struct promised_line *line);

/* Set the units that moves in a timeline must leave, kept from all others; and whether its promises
 * may add up to more than there is, so that none of them is moved.
 */
void promises_set_line (struct promised_line *line, int64_t kept, bool overdrawn);

/* Enter a job's promise of units in a span of a timeline.  After a move it lasts for the length.
 * The span, a start and an end, is changed with it: the caller keeps it until promises_drop().  The
 * timeline is the caller's to change.
 */
int promises_put (struct promises *promises,
                  int64_t jobid,
                  struct promised_line *line,
                  int64_t count,
                  double *span,
                  double length);
void promises_drop (struct promises *promises, int64_t jobid);

/* Note that units have just come free in a span of a timeline, which has them already. */
int promises_opened (struct promises *promises,
                     struct promised_line *line,
                     double start,
                     double end,
                     int64_t count);

/* Move the promises of jobs, one after another, to the earliest times at which they fit, as
 * PromiseMoves.advance_in_turn().
 *
 * jobids: the row of them
 * places: room for as many: set to the places in the row of those that moved
 * moved: set to their number
 * first: set to the earliest of their starts, or infinity
 *
 * Returns the number of jobs, from the first on, that were examined; or -1: no memory.
 */
int64_t promises_advance (struct promises *promises,
                          const int64_t *jobids,
                          size_t count,
                          double now,
                          int64_t *places,
                          size_t *moved,
                          double *first);

/* The jobs whose promises start at a time or before.
 *
 * jobids: room for all promises: set to these jobs, in no order
 * next: set to the first start after that time, or infinity
 *
 * Returns their number.
 */
size_t promises_due (const struct promises *promises, double now, int64_t *jobids, double *next);

/* Room on ranks over time, as flux.resource.plan.availability.Availability: the result of a
 * function is documented there, at the method of its name.  Masks of ranks are ranks / 8 + 1 bytes,
 * the lowest rank first.
 */
struct availability;
struct demand;

/* ranks, kinds: their numbers; totals: the amounts of each rank, one rank after the other; those of
 * a rank that does not exist are 0; least: of each amount, that one that exists has.
 */
struct availability *availability_create (size_t ranks,
                                          size_t kinds,
                                          const int64_t *totals,
                                          const int64_t *least);
struct availability *availability_copy (const struct availability *all);
void availability_destroy (struct availability *all);

/* A demand, or no more than a claim (count 0), shared by uses, which may be released before them.
 *
 * each: an amount of each kind
 * claims: number of kinds of claim, each with a key.  Of two uses with different keys, each excludes
 *     the other from the ranks that either claims
 * ranks: mask of usable ranks; then for each kind of claim the mask of the ranks that it claims
 */
struct demand *demand_create (const struct availability *all,
                              int64_t count,
                              const int64_t *each,
                              bool per_node,
                              bool whole,
                              size_t claims,
                              const int64_t *keys,
                              const unsigned char *ranks);
void demand_release (struct demand *demand);

/* Numbers of uses are from 1 on.  Functions that return one return 0 if there is no room, and -1 if there
 * is no memory left.
 *
 * demand: or NULL; count: the number of masks of ranks, one after the other, on whose ranks it takes the
 * amounts
 */
int64_t availability_use (struct availability *all,
                          double start,
                          double end,
                          struct demand *demand,
                          size_t count,
                          const unsigned char *ranks,
                          const int64_t *amounts);
int availability_enter (struct availability *all, int64_t number);
int availability_leave (struct availability *all, int64_t number);
int availability_drop (struct availability *all, int64_t number);

/* Returns the number of ranks; ranks, amounts: room for these, or NULL. */
size_t availability_amounts_of (const struct availability *all,
                                int64_t number,
                                int64_t *ranks,
                                int64_t *amounts);

/* ranks: set to those with room, and each: by rank, to the units on those of the demand; or NULL */
int64_t availability_room (const struct availability *all,
                           const struct demand *demand,
                           double start,
                           double end,
                           unsigned char *ranks,
                           int64_t *each);
bool availability_overdrawn (const struct availability *all, int64_t number, double since);
/* claim: a demand with one, or NULL */
void availability_taken (const struct availability *all,
                         const struct demand *claim,
                         double start,
                         double end,
                         unsigned char *ranks);
/* Minus infinity: no memory. */
double availability_earliest (struct availability *all,
                              struct demand *demand,
                              double length,
                              double after,
                              double now,
                              bool may_move);
/* With `keep`, the promise is bound, and its number returned; else 1 if there is a way. */
int64_t availability_book (struct availability *all,
                           struct demand *demand,
                           double start,
                           double end,
                           double now,
                           bool may_move,
                           bool keep);
double availability_enough_until (struct availability *all,
                                  const struct demand *demand,
                                  double since);
/* Returns -1 if there is no memory. */
int availability_can_start (struct availability *all,
                            struct demand *demand,
                            double now,
                            double end,
                            bool may_move);
/* can: set to whether the promise in the place that is returned can start.  Returns -1 if there is no
 * memory.
 */
int64_t availability_first_to_start (struct availability *all,
                                     size_t count,
                                     const int64_t *numbers,
                                     double now,
                                     bool may_move,
                                     bool summed,
                                     size_t most,
                                     bool *can);
