// The beginning of a page, up to the color rules of its series: light or dark as set in the
// browser.
#pragma once

namespace mpt {

inline constexpr const char* kPageHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root{--page:#fbfbfa;--card:#fff;--text:#1d1f23;--soft:#676c75;--rule:#e3e4e8;--good:#157f3c;
--bad:#c0272d;--open:#9a6700;
--c0:#2563c9;--c1:#d9660a;--c2:#1b8a4c;--c3:#b3259a;--c4:#0e8a9c;--c5:#c22f2f;--c6:#6d4cc7;
--c7:#7c6a12}
@media(prefers-color-scheme:dark){:root{--page:#15171b;--card:#1d2026;--text:#e7e8ea;
--soft:#9aa0aa;--rule:#343841;
--good:#4fc27a;--bad:#ff7b72;--open:#e0a83a;--c0:#6ea8ff;--c1:#ff9d4d;--c2:#52cf8a;--c3:#f07fd9;
--c4:#4fd0e3;--c5:#ff7d7d;
--c6:#ab93ff;--c7:#d8c04a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1480px;padding:28px 24px 60px;background:var(--page);
color:var(--text);
font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:25px;margin:0 0 2px;overflow-wrap:anywhere}h2{font-size:18px;margin:34px 0 10px}
p{margin:4px 0 10px;color:var(--soft);max-width:90ch}
.card{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px 14px;
overflow-x:auto}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0}figcaption{font-weight:600;margin-bottom:4px;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto}svg text{font-size:12px;fill:var(--soft)}
.y{text-anchor:end}.x{text-anchor:middle}.cut{text-anchor:end}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.line{fill:none;stroke-width:1.8;
stroke-linejoin:round}
.band{stroke:none;opacity:.18}.mark{stroke:var(--bad);stroke-width:1.5}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--rule);
vertical-align:top}
th{font-weight:600;color:var(--soft);font-size:13px}tr:last-child td{border-bottom:0}
td{overflow-wrap:anywhere;min-width:5em}.n{text-align:right;white-space:nowrap}
.name{min-width:9em}.name::before{content:"";display:inline-block;width:11px;height:11px;
border-radius:3px;margin-right:7px;
background:var(--own)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 12px}
.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}
.track{height:8px;border-radius:4px;background:var(--rule);min-width:120px;margin-top:8px}
.track i{display:block;height:8px;border-radius:4px;background:currentColor}
code,pre{font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace}pre{white-space:pre-wrap;
overflow-wrap:anywhere;margin:8px 0}
summary{cursor:pointer}details{margin:6px 0}
)";

}  // namespace mpt
