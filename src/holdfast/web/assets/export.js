import{Hr as e,M as t,N as n,Wn as r,ar as i,ei as a,et as o,ir as s,j as c,z as l}from"./start.js";async function u(t){try{await l(p(await e.session(t))),i(a().copied)}catch(e){s(e)}}async function d(t,n){try{let r=await(n===`json`?e.wholeSession(t):e.session(t)),i=(r.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;n===`json`?g(`${i}.json`,JSON.stringify(r,null,2),`application/json`):g(`${i}.md`,p(r),`text/markdown`)}catch(e){s(e)}}async function f(t){try{let n=[];for(let r of t)n.push(p(await e.session(r)));g(`chats.md`,n.join(`
---

`),`text/markdown`)}catch(e){s(e)}}function p(e){return`${[`# ${e.title||a().untitled}`,...e.system?[h(e.system)]:[],...t(e.messages).map(m)].join(`

`)}\n`}function m({message:e,earlier:t}){let i=e.role===`user`?a().you:n([...t,e]).join(`, `)||e.role,s=o(e.outcome,null),l=[...[...t,e].flatMap(({content:e})=>r(e)).map(()=>a().imageAlt),e.edited?a().editedByPerson:``,s?.label??``].filter(Boolean);return[`## ${i}`,c([...t,e]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};