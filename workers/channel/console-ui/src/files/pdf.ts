/**
 * Draws pages of a PDF; loaded with the first one.
 *
 * What is drawn are pictures: scripts, forms, links and attachments of the file are never looked at,
 * and reading it happens in a worker of this origin that the page's policy holds, too.
 */

import { getDocument, GlobalWorkerOptions, type PDFDocumentProxy } from "pdfjs-dist";
import worker from "pdfjs-dist/build/pdf.worker.min.mjs?url";

GlobalWorkerOptions.workerSrc = worker;

/** Largest picture of a page in pixels, so that a page of a mile's width is no trap. */
const MAX_PIXELS = 6_000_000;

export interface Opened {
  pages: number;
  draw: (page: number, canvas: HTMLCanvasElement, width: number) => Promise<void>;
  close: () => void;
}

export async function open(bytes: Uint8Array<ArrayBuffer>): Promise<Opened> {
  const task = getDocument({
    // The worker takes what it is given away.
    data: bytes.slice(),
    isEvalSupported: false,
    enableXfa: false,
    stopAtErrors: false,
    // Nothing is fetched: neither fonts nor tables nor decoders.
    useWasm: false,
    useWorkerFetch: false,
    disableAutoFetch: true,
    useSystemFonts: true,
    maxImageSize: MAX_PIXELS * 4,
    verbosity: 0,
  });
  let file: PDFDocumentProxy;
  try {
    file = await task.promise;
  } catch (error) {
    void task.destroy();
    throw error;
  }
  return {
    pages: file.numPages,
    async draw(number, canvas, width) {
      const page = await file.getPage(number);
      const whole = page.getViewport({ scale: 1 });
      const wanted = (width * Math.min(devicePixelRatio, 2)) / whole.width;
      const most = Math.sqrt(MAX_PIXELS / (whole.width * whole.height));
      const viewport = page.getViewport({ scale: Math.min(wanted, most) });
      canvas.width = Math.max(1, Math.floor(viewport.width));
      canvas.height = Math.max(1, Math.floor(viewport.height));
      await page.render({ canvas, viewport, annotationMode: 0 }).promise;
      page.cleanup();
    },
    close: () => void task.destroy(),
  };
}
