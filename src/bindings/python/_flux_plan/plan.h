/* SPDX-License-Identifier: LGPL-3.0-or-later
 *
 * What flux/resource/plan/compiled.py calls.  build.py gives this file to cffi as it is, which
 * reads declarations and nothing else: no preprocessor here.
 *
 * Times are seconds since the epoch, infinity where there is no end.  What returns an int returns
 * 0, or -1 if there is no memory left.
 */

/* A step function of time, as flux.resource.plan.count_timeline.CountTimeline: what a function
 * answers, and what it costs, is said there at the method of its name.
 */
struct timeline;

struct timeline *timeline_create (double start, int64_t value);
struct timeline *timeline_rising (double start,
                                  int64_t value,
                                  const double *times,
                                  const int64_t *gains,
                                  size_t count);
struct timeline *timeline_copy (const struct timeline *line);
void timeline_destroy (struct timeline *line);

size_t timeline_length (const struct timeline *line);
/* Copy all steps to arrays that have room for timeline_length() of them. */
void timeline_steps (const struct timeline *line, double *starts, int64_t *values);
double timeline_begin (const struct timeline *line);

int timeline_add (struct timeline *line, double start, double end, int64_t delta);
void timeline_forget (struct timeline *line, double time);

int64_t timeline_at (const struct timeline *line, double time);
int64_t timeline_before (const struct timeline *line, double time);
double timeline_after (const struct timeline *line, double time);
int64_t timeline_least (const struct timeline *line, double start, double end);
void timeline_extremes (const struct timeline *line,
                        double start,
                        double end,
                        int64_t *least,
                        int64_t *most);
double timeline_since (const struct timeline *line, int64_t value, double time);
double timeline_below (const struct timeline *line, int64_t value, double start);
double timeline_first (const struct timeline *line,
                       int64_t value,
                       double length,
                       double start,
                       double limit,
                       double until);

/* The promises that are counted in some timelines, as flux.resource.plan.promise_moves.PromiseMoves
 * has them: to move them to earlier times, one after another.
 */
struct promises;

struct promises *promises_create (void);
void promises_destroy (struct promises *promises);

/* Have promises in a timeline, which must stay until promises_drop_line() or promises_destroy().
 * Returns a number for it, or -1: no memory.
 */
int promises_add_line (struct promises *promises, struct timeline *line);
/* There are no promises in a timeline any more, and there will be none. */
void promises_drop_line (struct promises *promises, int number);

/* What the timeline with a number must leave: units that are kept from all others; and whether its
 * promises may add up to more than there is, so that none of them is moved.
 */
void promises_set_line (struct promises *promises, int number, int64_t kept, bool overdrawn);

/* A job has a promise of so many units in the timeline with a number from a start to an end.  It
 * lasts so long where it moves to.  The timeline is the caller's to change.
 */
int promises_put (struct promises *promises,
                  int64_t jobid,
                  int number,
                  int64_t count,
                  double start,
                  double end,
                  double length);
void promises_drop (struct promises *promises, int64_t jobid);

/* So many units have just come free in a span of the timeline with a number, and are free there. */
int promises_opened (struct promises *promises, int number, double start, double end, int64_t count);

/* Move the promises of jobs, one after another, to the earliest times at which they fit, as
 * PromiseMoves.advance_in_turn().
 *
 * jobids: the row of them
 * places, spans: room for as many, and for as many pairs: of those that moved, set to their places in
 *     the row, and to their starts and ends
 * moved: set to how many that are
 * released: for each number of a timeline, set to the earliest start of what came free
 *
 * Returns how many, from the first on, were looked at; or -1: no memory.
 */
int64_t promises_advance (struct promises *promises,
                          const int64_t *jobids,
                          size_t count,
                          double now,
                          int64_t *places,
                          double *spans,
                          size_t *moved,
                          double *released);

/* How often timelines were searched since the promises were created, for tests of what grows with
 * what.
 */
uint64_t promises_searches (const struct promises *promises);
