/**
 * What an app's document may load: pure.
 *
 * The policy is the first thing in the document, and the proxy refuses a document that begins
 * otherwise (spec s0, "MCP Apps"). What a server declares can only add origins to places that are
 * named here; a value that is no plain origin is left out, so no value can add a directive.
 */

/** Origins by what they are for, as granted or as declared. */
export interface Origins {
  connectDomains?: unknown;
  resourceDomains?: unknown;
  frameDomains?: unknown;
  baseUriDomains?: unknown;
}

/** Origins of each kind that are looked at. */
const MOST_ORIGINS = 64;
const LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
const ORIGIN = new RegExp(`^https://((?:\\*\\.)?(?:${LABEL}\\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)(?::([0-9]{1,5}))?$`);

/**
 * An https origin of a DNS name, with one wildcard at most and a port; null for all else (spec s2,
 * "Iframe policy and AppBridge").
 */
export function origin(declared: unknown): string | null {
  if (typeof declared !== "string" || declared.length > 300) return null;
  const text = declared.trim().toLowerCase();
  const found = ORIGIN.exec(text);
  if (found === null) return null;
  const [, host = "", port] = found;
  // Without its wildcard a name has two labels at least: `*.com` would be half of the net.
  if (host.length > 253 || host.replace(/^\*\./, "").split(".").length < 2) return null;
  if (port !== undefined && (Number(port) === 0 || Number(port) > 65_535)) return null;
  return text;
}

/** The good ones, in their order, each once. */
export function origins(declared: unknown): string[] {
  if (!Array.isArray(declared)) return [];
  const good = declared.slice(0, MOST_ORIGINS).flatMap((value: unknown) => origin(value) ?? []);
  return [...new Set(good)];
}

/** True when what is declared lies within an entry of the host's list. */
export function within(declared: string, allowed: string): boolean {
  if (declared === allowed) return true;
  const split = (text: string): [string, string] => {
    const rest = text.slice("https://".length);
    const at = rest.indexOf(":");
    return at < 0 ? [rest, ""] : [rest.slice(0, at), rest.slice(at)];
  };
  const [host, port] = split(declared);
  const [pattern, patternPort] = split(allowed);
  return port === patternPort && pattern.startsWith("*.") && host.endsWith(pattern.slice(1));
}

/** Of the declared origins those that the host's list covers; an empty list covers none. */
export function granted(declared: unknown, allowed: readonly string[]): string[] {
  const list = origins([...allowed]);
  return origins(declared).filter((one) => list.some((entry) => within(one, entry)));
}

function sources(list: string[], always: string): string {
  if (list.length > 0) return [...(always === "" ? [] : [always]), ...list].join(" ");
  return always === "" ? "'none'" : always;
}

/** The frames that an app may show, as they stand in a policy. */
function frameSources(given: Origins): string {
  return sources(origins(given.frameDomains), "");
}

/**
 * The canonical policy of an app's document.
 *
 * Script is the document's own: no remote origin ever stands in `script-src`. Of what the standard
 * gives every app nothing is added (`blob:`, evaluation, workers).
 */
export function innerPolicy(given: Origins): string {
  const resources = origins(given.resourceDomains);
  return [
    "default-src 'none'",
    "script-src 'unsafe-inline'",
    `style-src ${sources(resources, "'unsafe-inline'")}`,
    `img-src ${sources(resources, "data:")}`,
    `media-src ${sources(resources, "data:")}`,
    `font-src ${sources(resources, "")}`,
    `connect-src ${sources(origins(given.connectDomains), "")}`,
    `frame-src ${frameSources(given)}`,
    `base-uri ${sources(origins(given.baseUriDomains), "")}`,
    "worker-src 'none'",
    "object-src 'none'",
    "form-action 'none'",
  ].join("; ");
}

/**
 * Runs before anything of the app's. It says when the document is being left and what its policy
 * blocked. An app can say both as well; it comes to an end, or to a line beside it. And it hears the
 * proxy, and frames of the app's own, for any other window of the page may speak to this one, too.
 */
const GUARD =
  'const p=parent,s=p.postMessage.bind(p);addEventListener("pagehide",()=>s("mono-app-leaving","*"));' +
  'document.addEventListener("securitypolicyviolation",e=>s({monoAppBlocked:[e.effectiveDirective,e.blockedURI]},"*"));' +
  'addEventListener("message",e=>{let w=e.source;if(!w||w===p||!("parent" in w))return;' +
  'while(w&&w!==self&&w!==w.parent)w=w.parent;if(w!==self)e.stopImmediatePropagation()},true)';
/**
 * A document without an address of its own resolves `#part` against the proxy's, and following such a
 * link would be leaving, as saving by a link would.
 */
const LINKS =
  ';addEventListener("click",e=>{const a=e.target.closest?.("a[href]"),h=a?.getAttribute("href");' +
  'if(!a||e.defaultPrevented)return;if(a.hasAttribute("download")){e.preventDefault();s({monoAppBlocked:["download",h]},"*")}' +
  'else if(h[0]=="#"){e.preventDefault();location.hash=h}})';
/** For servers whose apps are asked to do without. No boundary: a fresh frame has them again. */
const NO_CALLS =
  ';for(const n of["RTCPeerConnection","webkitRTCPeerConnection","RTCDataChannel","WebTransport"])delete globalThis[n]';

/** What stands before an app's own bytes. */
export function opening(policy: string, webrtc: boolean): string {
  return (
    `<meta http-equiv="Content-Security-Policy" content="${policy}"><meta name="referrer" content="no-referrer">` +
    `<script>{${GUARD}${LINKS}${webrtc ? "" : NO_CALLS}}document.currentScript.remove()</script>`
  );
}

/** The whole document that is shown. */
export function document(html: string, given: Origins, webrtc: boolean): string {
  return opening(innerPolicy(given), webrtc) + html.replace(/^\ufeff/, "");
}
