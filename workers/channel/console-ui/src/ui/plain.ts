/**
 * Names as they are: what isn't visible, and what turns the direction of the text after it, shows as
 * a sign of its own, so that `photo<turn>gpj.exe` can't look like a picture. Pure.
 */
export function plain(name: string): string {
  return name.replaceAll(/[\u0000-\u001f\u007f-\u009f\u200b\u2028-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");
}
