// Text that a stranger wrote, so that it is seen and does nothing. It goes into the document as text
// nodes, never as markup. Characters that a reader cannot see, or that change how their neighbours
// are read (controls, escapes, marks of direction), stand as small signs.

// Joiners are part of letters and of emoji.
const ODD = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu;
const MOST_SIGNS = 5000; // elements in one text; beyond, the signs are letters like others

// The name of an odd character: "␛" for an escape, "U+202E" for what has no picture.
export function sign(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return "U+" + code.toString(16).toUpperCase().padStart(4, "0");
}

// Text in one line that is no element's content, such as a tooltip.
export const plain = (text) => text.replace(ODD, sign);

// Appends a text to an element.
export function put(element, text) {
  let at = 0;
  let signs = 0;
  for (const found of text.matchAll(ODD)) {
    if (++signs > MOST_SIGNS) {
      element.append(plain(text.slice(at)));
      return element;
    }
    element.append(text.slice(at, found.index));
    const odd = document.createElement("span");
    odd.className = "odd";
    odd.textContent = sign(found[0]);
    element.append(odd);
    at = found.index + found[0].length;
  }
  element.append(text.slice(at));
  return element;
}
