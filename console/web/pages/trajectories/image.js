// An image that the policy was shown. Its bytes are decoded to pixels and drawn, here and only once it
// is in view: it is never a document, and nothing in it can run.

import { askBytes } from "../api.js";
import { fill, h } from "../dom.js";
import { count } from "../format.js";

const MOST = 1024; // pixels of a side as it is drawn

const seen = new IntersectionObserver((found) => {
  for (const { isIntersecting, target } of found) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });

const asked = new WeakMap();

// media: { sha256, kind, size }.
export function image(run, media) {
  const frame = h("figure", { class: "shown" }, h("p", { class: "quiet" }, `an image, ${count(media.size)} bytes`));
  asked.set(frame, { run, media });
  seen.observe(frame);
  return frame;
}

async function draw(frame) {
  const { run, media } = asked.get(frame);
  try {
    const pixels = await createImageBitmap(await askBytes("image", { run, sha256: media.sha256 }));
    const { width, height } = pixels;
    const scale = Math.min(1, MOST / Math.max(width, height));
    const canvas = h("canvas", { role: "img", "aria-label": `image ${width} by ${height}` });
    [canvas.width, canvas.height] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    canvas.getContext("2d").drawImage(pixels, 0, 0, canvas.width, canvas.height);
    pixels.close();
    fill(frame, canvas, h("figcaption", { class: "quiet" }, `${width} × ${height}, ${count(media.size)} bytes, `, h("code", {}, media.sha256.slice(0, 12))));
  } catch (error) {
    const why = error instanceof DOMException ? "this browser cannot draw it" : error.message;
    fill(frame, h("p", { class: "fault" }, `No image: ${why}.`));
  }
}
