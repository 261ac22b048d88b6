import{$ as e,Fr as t,M as n,N as r,V as i,Vn as a,er as o,j as s,qr as c,tr as l}from"./start.js";async function u(e){try{await i(p(await t.session(e))),l(c().copied)}catch(e){o(e)}}async function d(e,n){try{let r=await(n===`json`?t.wholeSession(e):t.session(e)),i=(r.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;n===`json`?g(`${i}.json`,JSON.stringify(r,null,2),`application/json`):g(`${i}.md`,p(r),`text/markdown`)}catch(e){o(e)}}async function f(e){try{let n=[];for(let r of e)n.push(p(await t.session(r)));g(`chats.md`,n.join(`
---

`),`text/markdown`)}catch(e){o(e)}}function p(e){return`${[`# ${e.title||c().untitled}`,...e.system?[h(e.system)]:[],...n(e.messages).map(m)].join(`

`)}\n`}function m({message:t,earlier:n}){let i=t.role===`user`?c().you:r([...n,t]).join(`, `)||t.role,o=e(t.outcome,null),l=[...[...n,t].flatMap(({content:e})=>a(e)).map(()=>c().imageAlt),t.edited?c().editedByPerson:``,o?.label??``].filter(Boolean);return[`## ${i}`,s([...n,t]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};