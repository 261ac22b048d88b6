import{M as e,N as t,Un as n,Ur as r,et as i,ir as a,j as o,rr as s,ti as c,z as l}from"./start.js";async function u(e){try{await l(p(await r.session(e))),a(c().copied)}catch(e){s(e)}}async function d(e,t){try{let n=await(t===`json`?r.wholeSession(e):r.session(e)),i=(n.title||`session`).replace(/[^\p{L}\p{N} _-]+/gu,``).slice(0,60).trim()||`session`;t===`json`?g(`${i}.json`,JSON.stringify(n,null,2),`application/json`):g(`${i}.md`,p(n),`text/markdown`)}catch(e){s(e)}}async function f(e){try{let t=[];for(let n of e)t.push(p(await r.session(n)));g(`chats.md`,t.join(`
---

`),`text/markdown`)}catch(e){s(e)}}function p(t){return`${[`# ${t.title||c().untitled}`,...t.system?[h(t.system)]:[],...e(t.messages).map(m)].join(`

`)}\n`}function m({message:e,earlier:r}){let a=e.role===`user`?c().you:t([...r,e]).join(`, `)||e.role,s=i(e.outcome,null),l=[...[...r,e].flatMap(({content:e})=>n(e)).map(()=>c().imageAlt),e.edited?c().editedByPerson:``,s?.label??``].filter(Boolean);return[`## ${a}`,o([...r,e]),...l.map(e=>`*${e}.*`)].join(`

`)}function h(e){return e.replace(/^/gm,`> `)}function g(e,t,n){let r=document.createElement(`a`);r.href=URL.createObjectURL(new Blob([t],{type:n})),r.download=e,r.click(),setTimeout(()=>URL.revokeObjectURL(r.href),1e3)}export{p as asMarkdown,u as copyMarkdown,f as exportAll,d as exportAs};