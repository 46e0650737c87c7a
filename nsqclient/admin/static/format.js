// Numbers and times as people read them. A dash: not known.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});
const fine = new Intl.NumberFormat("en", {maximumFractionDigits: 1});

const known = (format) => (n) => (n === null || n === undefined ? "–" : format(n));

export const count = known((n) => whole.format(n));
// Six digits in full, then shortened: a column keeps its width.
export const compact = known((n) => (n < 1e6 ? whole : short).format(n));
export const rate = known((n) => (n < 100 ? fine.format(n) : compact(Math.round(n))));

export const duration = known((seconds) => {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
});

export const latency = (nanoseconds) => {
  if (nanoseconds < 1e6) return `${fine.format(nanoseconds / 1e3)} µs`;
  return nanoseconds < 1e9 ? `${fine.format(nanoseconds / 1e6)} ms` : `${fine.format(nanoseconds / 1e9)} s`;
};

const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const day = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short"});

// A time in seconds since the epoch, with the date unless it is today's.
export const moment = (seconds) => {
  const then = new Date(seconds * 1000);
  return then.toDateString() === new Date().toDateString() ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
};

export const bytes = (n) => (n < 1024 ? `${n} B` : n < 1048576 ? `${fine.format(n / 1024)} KiB` : `${fine.format(n / 1048576)} MiB`);
export const percent = (share) => `${fine.format(share * 100)} %`;
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
export const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] || 0), 0);
