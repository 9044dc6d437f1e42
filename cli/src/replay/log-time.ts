/**
 * Parses times of logs. Rejects days that do not exist, which `Date` would turn into other days.
 */

const MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec";
/** 10/Oct/2000:13:55:36 -0700. */
const CLF_TIME = new RegExp(
  `^(\\d{2})/(${MONTH})/(\\d{4}):((?:[01]\\d|2[0-3]):[0-5]\\d):([0-5]\\d|60) ([+-](?:(?:0\\d|1[0-3])[0-5]\\d|1400))$`,
);
/** Tue, 10 Oct 2000 13:55:36 GMT. */
const MAIL_DATE = new RegExp(`^(?:[A-Z][a-z]{2}, )?((\\d{1,2}) (?:${MONTH}) (\\d{4})) `);
/** 2000-10-10T13:55:36.5Z; also with a blank, or with slashes. */
const ISO_DATE = /^((\d{4})([-/])\d{2}\3(\d{2}))(?:[T ]|$)/;
/** The largest offset of a time zone, minutes: that of Kiribati. */
const FARTHEST_ZONE = 14 * 60;

let lastTime = "";
let lastMs = Number.NaN;

/**
 * Parses the combined format, 10/Oct/2000:13:55:36 -0700. Most lines have the second of the line
 * before.
 */
export function parseClfTime(time: string): number {
  if (time === lastTime) return lastMs;
  lastTime = time;
  lastMs = clfTime(time);
  return lastMs;
}

function clfTime(text: string): number {
  const [, day, month, year, minute, second, zone] = CLF_TIME.exec(text) ?? [];
  // a leap second is written as 60, which `Date` does not know
  return dateTime(`${day} ${month} ${year} ${minute}:00 ${zone}`) + Number(second) * 1000;
}

/** Parses the combined format, ISO 8601, and the format of mail and HTTP. NaN for anything else. */
export function parseTime(text: string): number {
  const clf = parseClfTime(text);
  return Number.isNaN(clf) ? dateTime(text) : clf;
}

function dateTime(text: string): number {
  const [, mail, mailDay, mailYear] = MAIL_DATE.exec(text) ?? [];
  const [, iso, isoYear, , isoDay] = ISO_DATE.exec(text) ?? [];
  const midnight = new Date(`${mail ?? iso} UTC`);
  const exists =
    midnight.getUTCFullYear() === Number(mailYear ?? isoYear) &&
    midnight.getUTCDate() === Number(mailDay ?? isoDay);
  return exists ? Date.parse(text) : Number.NaN;
}

/** A time of day, and the offset of its zone. */
const OFFSET = /\d{2}:\d{2}:\d{2}(?:[.,]\d+)? ?([+-])(\d{2}):?(\d{2})\b/;

/** Returns the zone in which a line of a log says its time, minutes east of UTC; 0 if it does not say. */
export function zoneMinutesOf(line: string): number {
  const [, sign, hours, minutes] = OFFSET.exec(line) ?? [];
  if (sign === undefined) return 0;
  const offset = Number(hours) * 60 + Number(minutes);
  return offset > FARTHEST_ZONE ? 0 : sign === "-" ? -offset : offset;
}
