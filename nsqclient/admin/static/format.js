// Numbers and times as people read them.
const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});
const fine = new Intl.NumberFormat("en", {maximumFractionDigits: 1});

export const count = (n) => (n === null || n === undefined ? "–" : whole.format(n));

// Six digits in full, then shortened: a column keeps its width.
export const compact = (n) => (n === null || n === undefined ? "–" : n < 1e6 ? whole.format(n) : short.format(n));

export const rate = (n) => {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  return n < 100 ? fine.format(n) : compact(Math.round(n));
};

export const duration = (seconds) => {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
};

// The time until something is empty; null: it does not become empty.
export const timeLeft = (seconds) => (seconds === null || seconds === undefined ? "–" : duration(seconds));

const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const day = new Intl.DateTimeFormat("en-GB", {day: "numeric", month: "short"});

// A moment in seconds since the epoch, with the date if it is not today's; empty: not known.
export const moment = (seconds, now = new Date()) => {
  if (!seconds) return "";
  const then = new Date(seconds * 1000);
  return then.toDateString() === now.toDateString() ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
};
export const since = (seconds) => (seconds ? ` since ${moment(seconds)}` : "");

export const bytes = (n) => (n < 1024 ? `${n} B` : n < 1048576 ? `${fine.format(n / 1024)} KiB` : `${fine.format(n / 1048576)} MiB`);

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
