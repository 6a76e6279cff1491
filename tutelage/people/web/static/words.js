// What the page says, in its language. English stands in the sources; the translations come with the page, from the same
// catalogue as those of its templates.

const { messages, forms } = JSON.parse(document.querySelector("#words").textContent);
const { lang } = document.documentElement;
const plurals = new Intl.PluralRules(lang);
const numbers = new Intl.NumberFormat(lang, { numberingSystem: "latn" }); // the digits that are on the keys

/** A whole number with the separators of the language. */
export const figure = (value) => numbers.format(value);

/** A message, with its `%(name)s` filled in: gettext("Edit %(letter)s", {letter}). */
export const gettext = (message, values = {}) => fill(messages[message] ?? message, values);

/** A message about `count` things, which it calls %(count)s. */
export function ngettext(one, many, count, values = {}) {
  const found = messages[one];
  const text = found ? (found[forms[plurals.select(count)]] ?? found.at(-1)) : count === 1 ? one : many;
  return fill(text, { count: figure(count), ...values });
}

const fill = (text, values) => text.replace(/%\((\w+)\)s/g, (whole, name) => String(values[name] ?? whole));
