// Base64 (RFC 4648, section 4), by the browser's own means.

type Native = { toBase64?: () => string };
type NativeClass = { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };

/** How many bytes become characters in one call: it passes each as an argument. */
const CHUNK = 0x8000;

export function encodeBytes(data: ArrayBuffer | ArrayBufferView): string {
  const bytes = ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
  const native = (bytes as Native).toBase64;
  if (native !== undefined) return native.call(bytes);
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}

/** undefined when it is none: no white space, no URL alphabet, padded. */
export function decodeBytes(text: string): ArrayBuffer | undefined {
  if (text.length % 4 !== 0 || /[^A-Za-z0-9+/]/.test(text.replace(/={1,2}$/, ""))) return undefined;
  const native = (Uint8Array as NativeClass).fromBase64;
  if (native !== undefined) return native.call(Uint8Array, text).buffer;
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}
