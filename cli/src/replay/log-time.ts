/**
 * Parses times of logs. Rejects days that do not exist, which `Date` would turn into other days.
 */

const MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec";
const CLF_TIME = /^(\d{2})\/([A-Z][a-z]{2})\/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})$/;
/** 2000-10-10T13:55:36.5Z; also with a blank, or with slashes. */
const ISO_DATE = /^(\d{4})([-/])(\d{2})\2(\d{2})(?:[T ]|$)/;
/** Tue, 10 Oct 2000 13:55:36 GMT. */
const MAIL_DATE = /^(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) /;
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
  const [, day, month = "", year, hour, minute, second, sign, zoneHours, zoneMinutes] =
    CLF_TIME.exec(text) ?? [];
  const midnight = midnightOf(Number(year), monthOf(month), Number(day));
  const time = [Number(hour), Number(minute), Number(second)] as const;
  const zone = Number(zoneHours) * 60 + Number(zoneMinutes);
  // a leap second is written as 60
  const isPossible = time[0] < 24 && time[1] < 60 && time[2] <= 60;
  if (!isPossible || zone > FARTHEST_ZONE || Number(zoneMinutes) > 59) return Number.NaN;
  const utc = midnight + ((time[0] * 60 + time[1]) * 60 + time[2]) * 1000;
  return utc + (sign === "-" ? zone : -zone) * 60_000;
}

/** Parses the combined format, ISO 8601, and the format of mail and HTTP. NaN for anything else. */
export function parseTime(text: string): number {
  const clf = parseClfTime(text);
  if (!Number.isNaN(clf)) return clf;
  const [, isoYear, , isoMonth, isoDay] = ISO_DATE.exec(text) ?? [];
  const [, day, month = "", year] = MAIL_DATE.exec(text) ?? [];
  const midnight =
    isoYear !== undefined
      ? midnightOf(Number(isoYear), Number(isoMonth) - 1, Number(isoDay))
      : midnightOf(Number(year), monthOf(month), Number(day));
  return Number.isNaN(midnight) ? Number.NaN : Date.parse(text);
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

/** From 0; -1 if it is not a month. */
function monthOf(name: string): number {
  const at = name.length === 3 ? MONTHS.indexOf(name) : -1;
  return at % 3 === 0 ? at / 3 : -1;
}

/** Midnight UTC, ms; NaN for a day that the month does not have. */
function midnightOf(year: number, month: number, day: number): number {
  const date = new Date(Date.UTC(year, month, day));
  const isSame =
    date.getUTCFullYear() === year && date.getUTCMonth() === month && date.getUTCDate() === day;
  return isSame ? date.getTime() : Number.NaN;
}
