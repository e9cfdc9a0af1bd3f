// What cells of tables show: values of any column, tiers as coloured labels, and a letter in place of a picture.

import { el, named } from "./dom.js";
import { stored } from "./format.js";
import { TEXT_CHARS_SHOWN } from "./limits.js";

const METALS = ["diamond", "platinum", "gold", "silver", "bronze", "iron"]; // each has its own colour in parts.css
const TONES = 6; // colours of letters, and of tiers with other names

/** Return a value with the decimals of its column. A text that is an address becomes a link. */
export function valueCell({ type, scale }, value) {
  if (value === null || value === undefined) return "–";
  if (type !== "text") return stored(value, scale);
  const shown = value.length > TEXT_CHARS_SHOWN ? `${value.slice(0, TEXT_CHARS_SHOWN)}…` : value;
  if (!isAddress(value)) return named(shown, { title: value });
  return el(
    "a",
    { href: value, rel: "noreferrer noopener nofollow", target: "_blank", title: value },
    named(shown.replace(/^https?:\/\//, "")),
  );
}

function isAddress(text) {
  return /^https?:\/\/\S+$/.test(text) && URL.canParse(text);
}

/** Return the CSS class with the colour of a tier, by its name or else by its place among the tiers of the column. */
export function tierLook(name, tiers) {
  const lower = name.toLowerCase();
  return `look-${METALS.includes(lower) ? lower : tiers.findIndex((tier) => tier.name === name) % TONES}`;
}

/** Return a tier as a coloured label, or a dash for no tier. */
export function tierTag(name, tiers, isCertain = true) {
  return name ? el("span", { class: `tag tier ${tierLook(name, tiers)}` }, isCertain ? name : `≈ ${name}`) : "–";
}

/** Return a circle with the first letter of a name. Screen readers skip it. */
export function avatar(owner, name) {
  let sum = 0;
  for (const letter of owner) sum = (sum * 31 + letter.codePointAt(0)) % 9973;
  const [first = "?"] = name || owner;
  return el("span", { class: `avatar look-${sum % TONES}`, "aria-hidden": "true", "data-letter": first.toUpperCase() });
}
